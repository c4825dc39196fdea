// What a line shows of its stream: the sentences of `views/notices.py`.

const commas = (n: number): string => n.toLocaleString('en-US')

/** With its ending: 1st, 2nd, 64th. */
export function ordinal(n: number): string {
  const ending = [11, 12, 13].includes(n % 100) ? 'th' : (['th', 'st', 'nd', 'rd'][n % 10] ?? 'th')
  return `${commas(n)}${ending}`
}

/**
 * How much of a stream a line shows.
 *
 * @param n_made - The records that were made.
 * @param n_shown - Those that are held for the line.
 * @param every - Of how many one is held, besides extremes.
 */
export function shownOf(n_made: number, n_shown: number, every: number): string {
  if (n_shown >= n_made) return n_made === 1 ? '1 record' : `all ${commas(n_made)} records`
  return `every ${ordinal(every)} of ${commas(n_made)} records, extremes kept`
}
