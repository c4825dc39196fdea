// The queries that a run answers, their clients, and what they cost the run.

import type { Run, StreamInfo } from '../../data/types'
import { askIn } from '../ask/AskPage'
import { costsOf } from './commands'

export function Queries({ run, streams, age_s }: { run: Run; streams: readonly StreamInfo[]; age_s: number }) {
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
              <button type="button" class="text-button" title="Open this query on the page Ask" onClick={() => askIn(run.key, stream.query)}>
                Open it here
              </button>
              <span class="muted">{costsOf(stream, age_s).join(' · ')}</span>
              {stream.last_error && <span class="field-problem">{stream.last_error}</span>}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
