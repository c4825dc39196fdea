// What a line shows of its stream: the sentences of `views/notices.py`.

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
  /** The step of the first, if earlier steps have no record. */
  first_step?: number
}

export function sentenceOf({ n_made, n_shown, every, kept = 'extremes', first_step }: Shown): string {
  const begins = first_step === undefined ? '' : ` from step ${commas(first_step)}`
  if (n_shown >= n_made) return `all ${commas(n_made)}${begins}`
  if (kept === 'newest') return `last ${commas(n_shown)} of ${commas(n_made)}`
  if (kept === 'evenly') return `${commas(n_shown)} of ${commas(n_made)}, evenly over the run`
  return `${every > 1 ? `every ${ordinal(every)}` : commas(n_shown)} of ${commas(n_made)}${begins}, extremes kept`
}

/** Of the first step, for a record before it: windows and epochs begin a step or so later than events. */
const MAX_ROOM = 0.5

/** The step of the first of some records, if there was room for another record before it. */
export function firstStep(step: ArrayLike<number>, index: ArrayLike<number>): number | undefined {
  const last = step.length - 1
  if (last < 1) return undefined
  const distance = (step[last]! - step[0]!) / (index[last]! - index[0]!)
  return distance > 0 && distance < MAX_ROOM * step[0]! ? step[0]! : undefined
}
