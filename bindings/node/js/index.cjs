'use strict';

const { Client } = require('./client.js');
const { connect } = require('./connect.cjs');
const { Guard, GuardSet } = require('./guard.js');
const { Acquirable, Lock, LockAll, RwLock, Semaphore } = require('./lock.js');
const { FencedUpdate } = require('./fenced.cjs');
const { TokenGate } = require('./gate.js');
const { observeWithOpenTelemetry, registerWithPromClient } = require('./metrics.cjs');
const { errorOf: _, wrongType: __, canceled: ___, ...errors } = require('./errors.js');

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
