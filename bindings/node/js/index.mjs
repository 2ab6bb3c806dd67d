import polylatch from './index.cjs';

export const {
  connect,
  Client,
  RwLock,
  Semaphore,
  Guard,
  GuardSet,
  TokenGate,
  PolylatchError,
  InvalidConfigError,
  InvalidArgumentError,
  UnsupportedError,
  WaitTimeoutError,
  CanceledError,
  LeaseLostError,
  StaleTokenError,
  NameConflictError,
  QuorumUnreachableError,
  BackendUnavailableError,
  BackendRejectedError,
  InternalError,
} = polylatch;
