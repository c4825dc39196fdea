// What a line shows of its stream: the sentences of `views/labels.py`.

const commas = (n: number): string => n.toLocaleString('en-US', { maximumSignificantDigits: 12 })

/** With its ending: 1st, 2nd, 64th. */
export function ordinal(n: number): string {
  const ending = [11, 12, 13].includes(n % 100) ? 'th' : (['th', 'st', 'nd', 'rd'][n % 10] ?? 'th')
  return `${commas(n)}${ending}`
}

/** How much of a stream a view shows. */
export interface Shown {
  /** The records that were made. */
  n_made: number
  /** Those that are held for the line. */
  n_shown: number
  /** Of how many one is held, besides extremes; 0 if that differs along the run. */
  every: number
  kept?: 'extremes' | 'newest' | 'evenly'
}

export function sentenceOf({ n_made, n_shown, every, kept = 'extremes' }: Shown): string {
  if (n_shown >= n_made) return `all ${commas(n_made)}`
  if (kept === 'newest') return `last ${commas(n_shown)} of ${commas(n_made)}`
  if (kept === 'evenly') return `${commas(n_shown)} of ${commas(n_made)}, evenly over the run`
  return `${every > 1 ? `every ${ordinal(every)}` : commas(n_shown)} of ${commas(n_made)}, extremes kept`
}
