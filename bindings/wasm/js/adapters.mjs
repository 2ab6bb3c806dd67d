// Redis clients as connections for `connect({ redis })`. None of them is closed here: they stay yours.

/**
 * A connection over `ioredis`. It takes a second connection to listen, made by `client.duplicate()`.
 * @param {any} client
 */
function ioredisConnection(client) {
  return {
    /** @param {string[]} args */
    command: ([verb, ...args]) => client.call(verb, ...args),
    /**
     * @param {string} channel
     * @param {(message: string) => void} listener
     */
    async subscribe(channel, listener) {
      const subscriber = client.duplicate();
      // What goes wrong there ends in waiting without pushes, not in an uncaught error.
      subscriber.on('error', () => {});
      subscriber.on('message', (/** @type {string} */ _, /** @type {string} */ message) => listener(message));
      const end = () => subscriber.disconnect();
      return confirmed(subscriber.subscribe(channel), end);
    },
  };
}

/**
 * A connection over the package `redis` (node-redis), connected already. It takes a second connection to
 * listen, made by `client.duplicate()`.
 * @param {any} client
 */
function nodeRedisConnection(client) {
  return {
    /** @param {string[]} args */
    command: (args) => client.sendCommand(args),
    /**
     * @param {string} channel
     * @param {(message: string) => void} listener
     */
    async subscribe(channel, listener) {
      const subscriber = client.duplicate();
      subscriber.on('error', () => {});
      // Before version 5 of the package, `disconnect` was what ends a connection at once.
      const end = () => (subscriber.destroy ? subscriber.destroy() : subscriber.disconnect());
      const listening = subscriber
        .connect()
        .then(() => subscriber.subscribe(channel, (/** @type {string} */ message) => listener(message)));
      return confirmed(listening, end);
    },
  };
}

/**
 * What ends a subscription, once it is confirmed. A second connection that cannot listen is of no use.
 * @param {Promise<unknown>} listening
 * @param {() => unknown} end
 */
async function confirmed(listening, end) {
  try {
    await listening;
    return end;
  } catch (error) {
    try {
      await end();
    } catch {
      // It was not open.
    }
    throw error;
  }
}

/**
 * A connection over an HTTP proxy that takes a command as a JSON list and answers `{ "result": … }` or
 * `{ "error": "…" }`. Such a proxy pushes nothing, so a waiter asks again at intervals (`poll`).
 * @param {string} url
 * @param {{ token?: string, fetch?: typeof fetch, timeout?: number }} [options]
 */
function httpRedisConnection(url, { token, fetch: send = fetch, timeout = 10_000 } = {}) {
  const headers = {
    'Content-Type': 'application/json',
    ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
  };
  // One after the other: requests may overtake each other, and commands must not.
  let before = Promise.resolve();
  /** @param {string[]} args */
  async function request(args) {
    // One that is never answered must not hold up all after it for good.
    const signal = AbortSignal.timeout(timeout);
    const response = await send(url, { method: 'POST', headers, body: JSON.stringify(args), signal });
    const { result, error } = await response.json();
    if (error !== undefined && error !== null) throw new Error(error);
    if (!response.ok) throw new Error(`the proxy answered with status ${response.status}`);
    return result;
  }
  return {
    /** @param {string[]} args */
    command(args) {
      const answer = before.then(() => request(args));
      before = answer.then(
        () => {},
        () => {},
      );
      return answer;
    },
  };
}

export { httpRedisConnection, ioredisConnection, nodeRedisConnection };
