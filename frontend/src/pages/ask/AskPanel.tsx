// One query's panel: what came, in its view; what it costs; keep, record, drop.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { messageOf, post, runPath } from '../../data/api'
import { byKey, styleOfRun } from '../../data/runs'
import { session } from '../../data/session'
import { Stream } from '../../data/stream'
import { Icon } from '../../ui/Icon'
import { IconButton, Menu } from '../../ui/parts'
import { tell } from '../../ui/toasts'
import { csvOf, saveFile } from '../../views/export'
import { count, number } from '../../views/format'
import type { Asked } from './panels'
import { StreamView } from './StreamView'

interface AskPanelProps {
  asked: Asked
  onChange: (asked: Asked | null) => void
  onEdit: () => void
}

export function AskPanel({ asked, onChange, onEdit }: AskPanelProps) {
  const { run: key, query } = asked
  const run = byKey.value.get(key)
  const stream = useMemo(() => new Stream(key, query), [key, query])
  useEffect(() => () => stream.close(), [stream])
  const choice = stream.view.value
  const view = asked.view && choice?.possible.includes(asked.view) ? asked.view : (choice?.view ?? '')
  const problem = stream.problem.value
  return (
    <article class="panel ask-panel" aria-label={query}>
      <header class="panel-head">
        <h3 title={query}>
          <button type="button" class="ask-query" onClick={onEdit} title="Put this query into the box">
            {query}
          </button>
        </h3>
        <span class="panel-notes">{run?.name ?? key}</span>
        <div class="panel-tools">
          {choice && (
            <select aria-label="View" class="view-select" value={view} onChange={({ currentTarget }) => onChange({ ...asked, view: currentTarget.value === choice.view ? '' : currentTarget.value })}>
              {choice.possible.map((one) => (
                <option key={one} value={one}>
                  {one}
                </option>
              ))}
            </select>
          )}
          {run?.live && session.value?.role === 'controller' && <Record run={key} query={query} />}
          <Menu icon="download" label="Download" items={[{ text: 'CSV of what is here', onClick: () => saveCsv(stream, run?.name ?? key, query) }]} />
          <IconButton icon="close" label="Drop this panel" onClick={() => onChange(null)} />
        </div>
      </header>
      {problem ? (
        <pre class="query-problem" role="alert">
          {problem}
        </pre>
      ) : (
        <StreamView stream={stream} view={view} title={query} style={run ? styleOfRun(key) : { color: 'var(--accent)', dash: [] }} />
      )}
      <Costs stream={stream} />
    </article>
  )
}

function Record({ run, query }: { run: string; query: string }) {
  const [kept, setKept] = useState(false)
  const change = async () => {
    try {
      await post(runPath(run, '/record'), { query, keep: !kept })
      setKept(!kept)
      tell('done', kept ? 'No longer recorded.' : "Recorded from now on, in the run's directory: it also appears among the charts.")
    } catch (error) {
      tell('error', messageOf(error))
    }
  }
  return <IconButton icon="record" label={kept ? 'Stop recording' : 'Record from now on'} pressed={kept} onClick={() => void change()} />
}

function Costs({ stream }: { stream: Stream }) {
  const now = stream.statistics.value
  const lost = (now?.n_skipped ?? 0) + (now?.n_dropped ?? 0) + (now?.n_lost ?? 0)
  const parts = [
    now && `${count(now.n_records)} records`,
    now && now.n_events > 0 && `${number((1e6 * now.spent_s) / now.n_events, 3)} µs an event`,
    now && now.stride > 1 && `one in ${now.stride} events`,
    now && now.n_skipped > 0 && `${count(now.n_skipped)} skipped`,
    now && now.n_dropped > 0 && `${count(now.n_dropped)} dropped`,
    now?.n_lost ? `${count(now.n_lost)} lost` : '',
    now?.n_left_out ? `${count(now.n_left_out)} left out on the way here` : '',
    stream.ended.value && 'ended',
    stream.note.value,
  ]
  return (
    <footer class={`ask-costs ${lost ? 'is-lossy' : ''}`}>
      {lost > 0 && <Icon name="warning" size={12} />}
      {parts.filter(Boolean).join(' · ')}
      {now?.last_error && <span class="field-problem">{now.last_error}</span>}
    </footer>
  )
}

function saveCsv(stream: Stream, run: string, query: string): void {
  const { step, wall, y } = stream.numbers.peek()
  if (y.length) saveFile(`${query}.csv`, csvOf(query, [{ label: run, step, wall, y }]), 'text/csv')
  else tell('error', 'Only numbers can be saved as CSV.')
}
