// A small Redis client of its own, so that the tests need none: the protocol of redis.io, "RESP2".

import { connect as dial } from 'node:net';

/** Takes one reply off the front: `[value, rest]`, or nothing if it is not whole. */
function take(buffer) {
  const end = buffer.indexOf('\r\n');
  if (end < 0) return undefined;
  const line = buffer.toString('utf8', 1, end);
  const rest = buffer.subarray(end + 2);
  switch (String.fromCharCode(buffer[0])) {
    case '+':
      return [line, rest];
    case '-':
      return [new Error(line), rest];
    case ':':
      return [Number(line), rest];
    case '$': {
      const length = Number(line);
      if (length < 0) return [null, rest];
      if (rest.length < length + 2) return undefined;
      return [rest.toString('utf8', 0, length), rest.subarray(length + 2)];
    }
    case '*': {
      if (Number(line) < 0) return [null, rest];
      const items = [];
      let left = rest;
      for (let count = Number(line); count > 0; count -= 1) {
        const taken = take(left);
        if (taken === undefined) return undefined;
        items.push(taken[0]);
        left = taken[1];
      }
      return [items, left];
    }
    default:
      throw new Error(`no RESP: ${line}`);
  }
}

function encoded(words) {
  const parts = [`*${words.length}\r\n`];
  for (const word of words) parts.push(`$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  return parts.join('');
}

function open(host, port, onReply, onEnd) {
  const socket = dial(port, host);
  socket.setNoDelay(true);
  // A held lock does not keep a process alive; a pending command does.
  socket.unref();
  let buffer = Buffer.alloc(0);
  socket.on('data', (data) => {
    buffer = Buffer.concat([buffer, data]);
    for (let taken = take(buffer); taken !== undefined; taken = take(buffer)) {
      buffer = taken[1];
      onReply(taken[0]);
    }
  });
  socket.on('error', onEnd);
  socket.on('close', () => onEnd(new Error('the connection ended')));
  return socket;
}

/** A connection for `connect({ redis })`, which connects when it is first used. */
export function respConnection(host, port) {
  let socket;
  const waiting = [];
  function connection() {
    if (socket === undefined || socket.destroyed) {
      socket = open(
        host,
        port,
        (reply) => {
          const { resolve, reject } = waiting.shift();
          if (waiting.length === 0) socket.unref();
          if (reply instanceof Error) reject(reply);
          else resolve(reply);
        },
        (error) => {
          for (const { reject } of waiting.splice(0)) reject(error);
        },
      );
    }
    return socket;
  }
  return {
    command(args) {
      return new Promise((resolve, reject) => {
        const to = connection();
        waiting.push({ resolve, reject });
        to.ref();
        to.write(encoded(args));
      });
    },
    subscribe(channel, listener) {
      return new Promise((resolve, reject) => {
        let ended = false;
        let again;
        const listen = () => {
          const subscriber = open(
            host,
            port,
            ([kind, , message]) => {
              if (kind === 'message') listener(message);
              else
                resolve(() => {
                  ended = true;
                  clearTimeout(again);
                  subscriber.destroy();
                });
            },
            (error) => {
              reject(error);
              if (!ended) again = setTimeout(listen, 50).unref();
            },
          );
          subscriber.write(encoded(['SUBSCRIBE', channel]));
        };
        listen();
      });
    },
    /** Ends the connection, as a failing network would. */
    cut() {
      socket?.destroy();
    },
  };
}
