// What a package has in its module of this name for `gate.ts`. Tokens are decimal text.

import type { Fault } from './port.js';

export class NativeGate {
  constructor(largest?: string);
  admit(token: string): Fault | undefined;
  largest(): string | null;
}
