import type { RunState } from '../data/types'
import type { LineStyle } from '../views/palette'

/** What a client may know besides: the run does not answer it, or its own program is gone. */
export type ShownState = RunState | 'lost' | 'kernel gone'

const WORDS: Record<ShownState, string> = {
  running: 'Running',
  quiet: 'Quiet: nothing has happened for ten times as long as usual',
  paused: 'Paused',
  stopping: 'Stopping',
  writing: 'Writing: its files changed within the last minutes',
  ended: 'Ended',
  failed: 'Failed: the training raised an error',
  terminated: 'Terminated: the process was told to end, by SIGTERM',
  died: 'Died: the process is gone without a word',
  silent: 'Silent: the run does not answer',
  recorded: 'Recorded: its files do not say how it ended',
  lost: 'Lost: the run does not answer',
  'kernel gone': 'The kernel of this notebook is gone: nothing new arrives',
}

/** How a run is: by colour and by shape. */
export function StateDot({ state, why, problem, word = false }: { state: ShownState; why?: string; problem?: string | null; word?: boolean }) {
  const is = why ? `${WORDS[state].split(':')[0]}: ${why}` : WORDS[state]
  const says = problem ? `${is}. ${problem}` : is
  return (
    <span class={`state state-${state.replace(' ', '-')}`} title={says}>
      <svg width="12" height="12" viewBox="0 0 12 12" role="img" aria-label={word ? undefined : says} aria-hidden={word}>
        {SHAPES[state]}
        {problem && <circle cx="10" cy="2.5" r="2.5" class="state-problem" />}
      </svg>
      {word && state}
    </span>
  )
}

const SHAPES: Record<ShownState, preact.JSX.Element> = {
  running: <circle cx="6" cy="6" r="4" fill="currentColor" />,
  quiet: <path d="M2.5 3.5h7M2.5 8.5h7" stroke="currentColor" stroke-width="1.8" stroke-dasharray="2 1.5" />,
  paused: <path d="M4 2.5v7M8 2.5v7" stroke="currentColor" stroke-width="2.4" />,
  stopping: <rect x="2.5" y="2.5" width="7" height="7" fill="currentColor" />,
  writing: <circle cx="6" cy="6" r="4" fill="currentColor" />,
  ended: <circle cx="6" cy="6" r="3.5" fill="none" stroke="currentColor" stroke-width="1.6" />,
  failed: <path d="M2.5 2.5l7 7M9.5 2.5l-7 7" stroke="currentColor" stroke-width="2.2" />,
  terminated: <rect x="2.5" y="2.5" width="7" height="7" fill="none" stroke="currentColor" stroke-width="1.6" />,
  died: <path d="M2.5 2.5l7 7M9.5 2.5l-7 7" stroke="currentColor" stroke-width="2.2" />,
  silent: <path d="M3 6h6" stroke="currentColor" stroke-width="2" />,
  recorded: <circle cx="6" cy="6" r="3.5" fill="none" stroke="currentColor" stroke-width="1.6" />,
  lost: <path d="M3 6h6" stroke="currentColor" stroke-width="2" />,
  'kernel gone': <path d="M3 6h6" stroke="currentColor" stroke-width="2" />,
}

/** A run's colour: filled while it is drawn; a line that is dashed in charts has a broken ring around its dot. */
export function Ring({ style, on }: { style: LineStyle; on: boolean }) {
  return (
    <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" style={{ color: style.color }}>
      {on && style.dash.length > 0 ? (
        <>
          <circle cx="8" cy="8" r="6.4" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="4.7 2" />
          <circle cx="8" cy="8" r="3" fill="currentColor" />
        </>
      ) : (
        <circle cx="8" cy="8" r="6" fill={on ? 'currentColor' : 'none'} stroke="currentColor" stroke-width="2" />
      )}
    </svg>
  )
}
