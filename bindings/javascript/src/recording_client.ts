// A client in a host that reaches stores with records of idempotent work.

import { Client as Locks } from './client.js';
import { type Encoding, Idempotency, type RecordsPort } from './idempotency.js';

/** One client of one store; one per process (or worker) is enough. */
export class Client extends Locks {
  #port: RecordsPort;

  protected constructor(port: RecordsPort) {
    super(port);
    this.#port = port;
  }

  /** @internal */
  static override of(port: RecordsPort): Client {
    return new Client(port);
  }

  /**
   * Names a scope of idempotent work: each of its keys is worked for once, and every repetition gets the stored answer.
   * Nothing is sent before the first call.
   *
   * The scope names the operation and the caller it is done for, such as `orders/customer-7`: 1 to 256 bytes. Take the
   * caller's identity from its credentials, never from its request: two callers that share a scope get each other's
   * answers for the same key. Results are stored as JSON, or with `encoding: 'bytes'` as they are.
   */
  idempotency(scope: string, options?: { encoding?: Encoding | undefined }): Idempotency {
    return Idempotency.of(this.#port, scope, options);
  }
}
