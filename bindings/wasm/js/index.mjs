export { httpRedisConnection, ioredisConnection, nodeRedisConnection } from './adapters.mjs';
export { Client, connect } from './connect.mjs';
export {
  BackendRejectedError,
  BackendUnavailableError,
  CanceledError,
  InternalError,
  InvalidArgumentError,
  InvalidConfigError,
  LeaseLostError,
  NameConflictError,
  PolylatchError,
  QuorumUnreachableError,
  StaleTokenError,
  UnsupportedError,
  WaitTimeoutError,
} from './errors.js';
export { TokenGate } from './gate.js';
export { Guard, GuardSet } from './guard.js';
export { Acquirable, Lock, LockAll, RwLock, Semaphore } from './lock.js';
export { HeldLock, LockManager } from './locks.mjs';
