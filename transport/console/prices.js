// What model requests cost, by the prices that the gateway was started with.

/** What these tokens cost, as `Price.of` says. */
function priceOf({ input, output, cached, stored }, usage) {
  const { cached: read = 0, stored: kept = 0 } = usage;
  const fresh = usage.input - read - kept;
  return (fresh * input + read * (cached ?? input) + kept * (stored ?? input) + usage.output * output) / 1_000_000;
}

/** The cost of rows of a waterfall: `{sum, whole}`, whole if each model has a price; null if no model has one. */
export function costOf(rows, prices) {
  let [sum, priced, whole] = [0, false, true];
  for (const { kind, name, usage } of rows) {
    if (kind !== "model" || !usage) continue;
    if (Object.hasOwn(prices, name)) {
      sum += priceOf(prices[name], usage);
      priced = true;
    } else whole = false;
  }
  return priced ? { sum, whole } : null;
}
