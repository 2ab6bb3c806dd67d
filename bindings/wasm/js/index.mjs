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
} from './errors.mjs';
export { TokenGate } from './gate.mjs';
export { Guard, GuardSet } from './guard.mjs';
export { Acquirable, Lock, LockAll, RwLock, Semaphore } from './lock.mjs';
export { HeldLock, LockManager } from './locks.mjs';
