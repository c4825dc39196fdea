// The queries that a run answers, their clients, and what they cost the run.

import type { StreamInfo } from '../../data/types'
import { count, duration, number } from '../../views/format'

const MAX_NAMED = 3

/** The names of a few clients, and how many more there are. */
function clientsText(clients: readonly string[]): string {
  const named = [...new Set(clients)].slice(0, MAX_NAMED)
  const n = clients.length
  return `${n} ${n === 1 ? 'client' : 'clients'}${n ? `: ${named.join(', ')}${n > named.length ? ' …' : ''}` : ''}`
}

export const percent = (share: number): string => (share < 0.0001 ? '< 0.01 %' : `${number(100 * share, 2)} %`)

export function Streams({ share, streams }: { share: number | null; streams: StreamInfo[] }) {
  if (streams.length === 0) return <p class="muted">No client queries this run, so observing costs it nothing.</p>
  return (
    <>
      {share !== null && (
        <p>
          All queries take <b>{percent(share)}</b> of the run's time.
        </p>
      )}
      <ul class="stream-list">
        {streams.map((stream) => (
          <li key={stream.stream}>
            <code>{stream.query}</code>
            <span class="muted">{factsOf(stream)}</span>
            {stream.last_error && <span class="field-problem">{stream.last_error}</span>}
          </li>
        ))}
      </ul>
    </>
  )
}

function factsOf(stream: StreamInfo): string {
  return [
    stream.recorded && 'recorded',
    clientsText(stream.clients),
    `${count(stream.n_records)} records of ${count(stream.n_events)} events`,
    `${duration(stream.spent_s)} spent`,
    stream.stride > 1 && `one in ${stream.stride} events`,
    stream.n_skipped > 0 && `${count(stream.n_skipped)} skipped`,
    stream.n_dropped > 0 && `${count(stream.n_dropped)} dropped`,
    (stream.n_unpaired ?? 0) > 0 && `${count(stream.n_unpaired ?? 0)} without a partner`,
    stream.n_errors > 0 && `${count(stream.n_errors)} errors`,
  ]
    .filter(Boolean)
    .join(' · ')
}
