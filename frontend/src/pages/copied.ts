// What can be copied of a card: a program, a command, a link.

import { commandOf, isNamed, pythonOf, type Asked, type PlotOptions } from '../data/copyAs'
import { allRuns, shown } from '../data/runs'
import { linkTo, state, type State } from '../state/state'
import { tell } from '../ui/toasts'
import { copyText } from '../views/clipboard'

export async function copy(text: string, done: string, refused: string): Promise<void> {
  try {
    await copyText(text)
    tell('done', done)
  } catch {
    tell('error', refused)
  }
}

/** The default selection changes as runs are added, so a link names its runs. */
export const namedRuns = (): Partial<State> => (state.peek().runs === null ? { runs: shown.peek().map((run) => run.key), hide: [] } : {})

/** Copy a link to this page, with some changes. */
export const copyLink = (change: Partial<State> = {}): Promise<void> =>
  copy(linkTo({ ...namedRuns(), ...change }), 'Link copied. Anyone who has opened this page with a token sees the same.', 'The browser refused to copy: take the link from the address bar.')

interface Card {
  title: string
  asked: readonly Asked[]
  /** Whether it shows what is recorded, of live runs, too. */
  recorded: boolean
  options?: Partial<PlotOptions>
  /** What of the page's state makes a link show this card. */
  link?: Partial<State>
}

/** The items of a card's menu. */
export function copiesOf({ title, asked, recorded, options, link }: Card): { text: string; onClick: () => void }[] {
  const named = asked.filter(({ run }) => typeof run === 'string' || isNamed(run))
  const refused = 'The browser refused to copy. Open the page over https, or on the machine itself.'
  const all = allRuns.peek() ?? []
  return [
    ...(named.length
      ? [
          { text: 'Copy as Python', onClick: () => void copy(pythonOf(named, recorded, all, title, options), 'Python copied: it draws this chart in a notebook or a terminal', refused) },
          { text: 'Copy as command', onClick: () => void copy(commandOf(named, recorded, all), 'Command copied: it draws this chart in a terminal', refused) },
        ]
      : []),
    { text: 'Copy link', onClick: () => void copyLink(link) },
  ]
}
