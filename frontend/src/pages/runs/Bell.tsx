// The alerts of all runs: how many are new since the list was last opened here, and the last one of each run.

import { signal } from '@preact/signals'
import { runs } from '../../data/runs'
import type { Run } from '../../data/types'
import { update } from '../../state/state'
import { Popover } from '../../ui/Popover'
import { dateTime } from '../../views/format'

const SEEN = 'sightglass alerts seen'
const MAX_LISTED = 50

/** When the newest alert was raised that was in the list when it was last opened. */
const seen = signal(Number(localStorage.getItem(SEEN) ?? 0))

/** The runs with alerts, the newest first. */
export const withAlerts = (runs: readonly Run[]): Run[] => runs.filter(({ alerts }) => alerts.n > 0).sort((a, b) => b.alerts.wall_time - a.alerts.wall_time)

export function Bell() {
  const told = withAlerts(runs.value ?? [])
  if (told.length === 0) return null
  const fresh = told.filter(({ alerts }) => alerts.wall_time > seen.value).length
  const look = () => {
    seen.value = Math.max(seen.value, told[0]!.alerts.wall_time)
    localStorage.setItem(SEEN, String(seen.value))
  }
  return (
    <Popover icon="bell" label={fresh ? `Alerts: ${fresh} ${fresh === 1 ? 'run has' : 'runs have'} new ones` : 'Alerts'} lit={fresh > 0} badge={fresh ? String(fresh) : ''} onOpen={look}>
      {(close) => (
        <ol class="alerts">
          {told.slice(0, MAX_LISTED).map(({ key, title, alerts }) => (
            <li key={key}>
              <button type="button" onClick={() => (close(), update({ run: key }, { page: 'run' }))}>
                <b class={`alert-title is-${alerts.level}`}>{alerts.title}</b>
                <span class="muted">
                  {title} · {dateTime(alerts.wall_time)}
                  {alerts.n > 1 && ` · ${(alerts.n - 1).toLocaleString('en')} earlier`}
                </span>
              </button>
            </li>
          ))}
          {told.length > MAX_LISTED && <li class="muted">{told.length - MAX_LISTED} more runs have alerts</li>}
        </ol>
      )}
    </Popover>
  )
}
