// Samples, and how they are told.

export function quantile(samples, share) {
  const sorted = Float64Array.from(samples).sort();
  return sorted.length === 0 ? Number.NaN : sorted[Math.round((sorted.length - 1) * share)];
}

export const median = (samples) => quantile(samples, 0.5);

export function heading(text) {
  console.log(`\n${text}`);
}

/** Prints median, quartiles and p99, and the ratio to other figures of the same run. */
export function row(name, unit, samples, floors = {}) {
  const middle = median(samples);
  const shown = (value) => (value >= 1_000 ? Math.round(value).toString() : value.toFixed(1));
  const ratios = Object.entries(floors).map(([floor, value]) => `${(middle / value).toFixed(2)} × ${floor}`);
  const spread = `[${shown(quantile(samples, 0.25))} … ${shown(quantile(samples, 0.75))}]`;
  console.log(
    `  ${name.padEnd(44)} ${shown(middle).padStart(9)} ${unit.padEnd(8)} ${spread}  ` +
      `p99 ${shown(quantile(samples, 0.99))}   ${ratios.join(', ')}`,
  );
}
