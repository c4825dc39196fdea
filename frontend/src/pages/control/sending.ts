// The page's way of sending commands: requests to its server.

import { post, runPath } from '../../data/api'
import { details } from '../../data/details'
import { Commander } from '../../run/commander'
import type { Acknowledgement } from '../../data/types'
import { tell } from '../../ui/toasts'

export const NO_COMMANDS = 'You opened the read-only link. To send commands, open the controller link'

const commanders = new Map<string, Commander>()

/** The commands of a run; they stay pending while other pages are shown. */
export function commanderOf(run: string): Commander {
  let found = commanders.get(run)
  if (!found) {
    found = new Commander({
      send: (command) => post<Acknowledgement>(runPath(run, '/commands'), command),
      history: () => details.of(run)?.history ?? [],
      tell,
      refresh: () => details.load(run),
    })
    commanders.set(run, found)
  }
  return found
}
