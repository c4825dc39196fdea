// The question that an error means: the library's sentences name what is unknown first, and then what may be meant.

/**
 * Return a query with the name that was meant, or null if the words name none that stands in the query.
 *
 * @param said What the run or the server says, such as "Unknown observable 'lss' at event 'batch'. Did you mean 'loss'?".
 */
export function corrected(query: string, said: string): string | null {
  const meant = /Did you mean (['"])(.+?)\1\?/.exec(said)
  const wrong = /(?:Unknown [\w ]+?|keyword argument) (['"])(.+?)\1/.exec(said)
  if (!meant || !wrong) return null
  const next = query.replaceAll(new RegExp(`(?<!\\w)${escaped(wrong[2]!)}(?!\\w)`, 'g'), () => meant[2]!)
  return next === query ? null : next
}

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
