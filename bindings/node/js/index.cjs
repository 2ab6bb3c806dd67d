'use strict';

const { Client, RwLock, Semaphore } = require('./client.cjs');
const { connect } = require('./connect.cjs');
const { Guard, GuardSet } = require('./guard.cjs');
const { FencedUpdate } = require('./fenced.cjs');
const { TokenGate } = require('./gate.cjs');
const { observeWithOpenTelemetry, registerWithPromClient } = require('./metrics.cjs');
const { errorOf: _, wrongType: __, canceled: ___, ...errors } = require('./errors.cjs');

module.exports = {
  connect,
  Client,
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
