// Who asks a run what, and what that costs it.

import type { Run, StreamInfo } from '../../data/types'
import { askIn } from '../ask/AskPage'
import { wordsOf } from './acts'

export function Asked({ run, streams, age_s }: { run: Run; streams: readonly StreamInfo[]; age_s: number }) {
  return (
    <div class="card">
      <h2>Who asks it what</h2>
      {streams.length === 0 ? (
        <p class="muted">Nobody asks this run anything, so watching it costs nothing.</p>
      ) : (
        <ul class="asked">
          {streams.map((stream) => (
            <li key={stream.stream}>
              <code title={stream.query}>{stream.tag || stream.query}</code>
              <button type="button" class="text-button" title="Ask the same on the page Ask" onClick={() => askIn(run.key, stream.query)}>
                See it here
              </button>
              <span class="muted">{wordsOf(stream, age_s).join(' · ')}</span>
              {stream.last_error && <span class="field-problem">{stream.last_error}</span>}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
