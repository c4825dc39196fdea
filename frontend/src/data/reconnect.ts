// When to dial again: a pure state machine, so that it can be tested without a network or a clock.

export type Link =
  | { kind: 'off' }
  | { kind: 'dialing'; attempt: number }
  | { kind: 'open' }
  | { kind: 'waiting'; attempt: number; delay_ms: number }
  | { kind: 'refused' }

export type LinkEvent =
  | { kind: 'start' }
  | { kind: 'welcome' }
  | { kind: 'closed'; code: number }
  | { kind: 'due' }
  | { kind: 'awake' }
  | { kind: 'stop' }

export const FIRST_DELAY_MS = 500
export const MAX_DELAY_MS = 15_000
/** The server's word for a token that it does not know: dialling again would not help. */
export const CODE_REFUSED = 4401
/** The page's own word for a server that gave no sign of life. */
export const SILENT = 4000

/** The n-th wait, doubling, with up to a half taken off so that many tabs do not come at once. */
export function delayOf(attempt: number, random: number): number {
  return Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt) * (1 - random / 2)
}

export function next(link: Link, event: LinkEvent, random: number): Link {
  switch (event.kind) {
    case 'stop':
      return { kind: 'off' }
    case 'start':
      return link.kind === 'off' || link.kind === 'refused' ? { kind: 'dialing', attempt: 0 } : link
    case 'welcome':
      return link.kind === 'dialing' ? { kind: 'open' } : link
    case 'closed': {
      if (link.kind === 'off' || link.kind === 'refused') return link
      if (event.code === CODE_REFUSED) return { kind: 'refused' }
      const attempt = link.kind === 'dialing' ? link.attempt + 1 : 0
      return { kind: 'waiting', attempt, delay_ms: delayOf(attempt, random) }
    }
    case 'due':
      return link.kind === 'waiting' ? { kind: 'dialing', attempt: link.attempt } : link
    case 'awake':
      // The machine woke up, or the network came back: no need to wait any longer.
      return link.kind === 'waiting' ? { kind: 'dialing', attempt: 0 } : link
  }
}
