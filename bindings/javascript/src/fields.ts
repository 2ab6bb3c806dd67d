// What the store says, with names as JavaScript has them.

/** Fields that are fencing tokens: numbers that a program hands on, not amounts. */
const TOKENS = new Set(['fencing_token', 'present']);

export function fieldsOf(text: string): any {
  return renamed(JSON.parse(text));
}

/** The numbers of a client, as text or as they are. Codes keep their names. */
export function statsOf(given: string | object): any {
  const { losses, errors, ...others } = typeof given === 'string' ? JSON.parse(given) : given;
  return { ...renamed(others), losses, errors };
}

export function renamed(value: any): any {
  if (Array.isArray(value)) return value.map(renamed);
  if (typeof value !== 'object' || value === null) return value;
  let hasToken = false;
  const entries = Object.entries(value).map(([key, inner]) => {
    const name = key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
    const isToken = TOKENS.has(key) && typeof inner === 'number';
    hasToken ||= isToken;
    return [name, isToken ? BigInt(inner as number) : renamed(inner)];
  });
  const made = Object.fromEntries(entries);
  if (hasToken) Object.defineProperty(made, 'toJSON', { value: withNumbers });
  return made;
}

/** JSON has no big integers, and tokens are below 2^53. */
function withNumbers(this: Record<string, any>): object {
  const plain = Object.entries(this).map(([name, value]) => [
    name,
    typeof value === 'bigint' ? Number(value) : value,
  ]);
  return Object.fromEntries(plain);
}
