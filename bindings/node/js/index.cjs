'use strict';

const { connect } = require('./connect.cjs');
const { Guard, GuardSet } = require('./guard.js');
const { Acquirable, Lock, LockAll, RwLock, Semaphore } = require('./lock.js');
const { idempotencyPlugin } = require('./fastify.cjs');
const { TokenGate } = require('./gate.js');
const { idempotencyHandler } = require('./http.cjs');
const { Claim, Idempotency } = require('./idempotency.js');
const {
  InProgressError,
  NotRecordedError,
  PayloadMismatchError,
  ResultTooLargeError,
  WorkFailedError,
} = require('./idempotency_errors.js');
const { observeWithOpenTelemetry, registerWithPromClient } = require('./metrics.cjs');
const { Client } = require('./recording_client.js');
const { ConditionalUpdate, FencedUpdate, TransactionLock, VersionedUpdate } = require('./sql.cjs');
const {
  StepsAttempt,
  TransactionAttempt,
  TransactionClaim,
  TransactionRuns,
  TransactionSteps,
} = require('./transactions.cjs');
const { errorOf: _, wrongType: __, canceled: ___, addKinds: ____, ...errors } = require('./errors.js');

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
  ConditionalUpdate,
  FencedUpdate,
  TransactionLock,
  VersionedUpdate,
  StepsAttempt,
  TransactionAttempt,
  TransactionClaim,
  TransactionRuns,
  TransactionSteps,
  TokenGate,
  Claim,
  Idempotency,
  idempotencyHandler,
  idempotencyPlugin,
  observeWithOpenTelemetry,
  registerWithPromClient,
  ...errors,
  InProgressError,
  NotRecordedError,
  PayloadMismatchError,
  ResultTooLargeError,
  WorkFailedError,
};
