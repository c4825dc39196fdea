// The queries that a run answers, their clients, and what they cost the run.

import type { StreamInfo } from '../data/types'
import { costsOf } from './commands'

interface QueriesProps {
  streams: readonly StreamInfo[]
  age_s: number
  /** Show a query in a view of its own; there is no button without it. */
  onOpen?: (query: string) => void
}

export function Queries({ streams, age_s, onOpen }: QueriesProps) {
  return (
    <div class="card">
      <h2>Queries</h2>
      {streams.length === 0 ? (
        <p class="muted">No client queries this run, so observing costs it nothing.</p>
      ) : (
        <ul class="queries">
          {streams.map((stream) => (
            <li key={stream.stream}>
              <code title={stream.query}>{stream.tag || stream.query}</code>
              {onOpen && (
                <button type="button" class="text-button" title="Open this query on the page Ask" onClick={() => onOpen(stream.query)}>
                  Open it here
                </button>
              )}
              <span class="muted">{costsOf(stream, age_s).join(' · ')}</span>
              {stream.last_error && <span class="field-problem">{stream.last_error}</span>}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
