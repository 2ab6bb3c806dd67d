'use strict';

const { Client } = require('./client.cjs');
const { connect } = require('./connect.cjs');
const { Guard, GuardSet } = require('./guard.cjs');
const { Acquirable, Lock, LockAll, RwLock, Semaphore } = require('./lock.cjs');
const { FencedUpdate } = require('./fenced.cjs');
const { TokenGate } = require('./gate.cjs');
const { observeWithOpenTelemetry, registerWithPromClient } = require('./metrics.cjs');
const { errorOf: _, wrongType: __, canceled: ___, ...errors } = require('./errors.cjs');

module.exports = {
  connect,
  Acquirable,
  Client,
  Lock,
  LockAll,
  RwLock,
  Semaphore,
  Guard,
  GuardSet,
  FencedUpdate,
  TokenGate,
  observeWithOpenTelemetry,
  registerWithPromClient,
  ...errors,
};
