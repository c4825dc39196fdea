// The runs of a pattern, above the rows of their streams: how many there are, and of how many the panel shows nothing.

import { byKey, live } from '../../data/runs'
import { IconButton } from '../../ui/parts'
import { count } from '../../views/format'
import { AxisButton } from './StreamRow'
import { MAX_RUNS, membersOf } from './fleet'

interface FleetRowProps {
  pattern: string
  /** Its query, where the panel has others. */
  query: string
  /** The runs that the panel shows. */
  keys: readonly string[]
  second: boolean | null
  onSecond: (second: boolean) => void
  onRemove: (() => void) | null
}

export function FleetRow({ pattern, query, keys, second, onSecond, onRemove }: FleetRowProps) {
  const n_live = membersOf(pattern, live.value).length
  const n_ended = keys.filter((key) => !byKey.value.get(key)?.live).length
  const words = [`${count(n_live)} live`, n_ended > 0 && `${count(n_ended)} ended`, keys.length >= MAX_RUNS && n_live > keys.length - n_ended && `the newest ${MAX_RUNS} are shown`]
  return (
    <li class="stream-row fleet-row">
      <div class="stream-line">
        <b class="stream-name" title={pattern}>
          {pattern}
        </b>
        {query && <code>{query}</code>}
        <span class="muted">{words.filter(Boolean).join(' · ')}</span>
        <span class="stream-tools">
          {second !== null && <AxisButton second={second} onSecond={onSecond} />}
          {onRemove && <IconButton icon="close" label={`Remove ${pattern} from this panel`} onClick={onRemove} />}
        </span>
      </div>
    </li>
  )
}
