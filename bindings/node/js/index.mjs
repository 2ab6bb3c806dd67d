import { createRequire } from 'node:module';

// Not imported: for that Node would search its text for exports first.
const polylatch = createRequire(import.meta.url)('./index.cjs');

export const {
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
