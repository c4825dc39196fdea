import { signal } from '@preact/signals'
import { baseline, labelOf, shown } from '../../data/runs'
import { selectAll, selectedKeys } from '../../data/selection'
import { at, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { NumberInput } from '../../ui/NumberInput'
import { Choice, Search, Toggle } from '../../ui/parts'
import type { BandKind } from '../../views/group'
import { xText } from '../../views/Legend'
import { kindOfX } from './cards'
import { NewChart } from './OwnChart'
import { tagSearch } from './sections'
import { XChoice } from './XChoice'

const open = signal(false)

/** The options of all charts. */
export function Toolbar({ n_tags, n_found }: { n_tags: number; n_found: number }) {
  const zoom = at.zoom.value
  return (
    <div class="toolbar" role="toolbar" aria-label="Charts">
      <Search label="Search tags by regular expression" placeholder="Search tags" hotkey="t" value={at.tags.value} problem={tagSearch(at.tags.value).problem} onChange={(tags) => update({ tags })} />
      <span class="muted toolbar-count">{at.tags.value ? `${n_found} of ${n_tags}` : `${n_tags} ${n_tags === 1 ? 'tag' : 'tags'}`}</span>
      <button type="button" class="button toolbar-more" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        View <Icon name="down" size={14} />
      </button>
      <div class={`toolbar-settings ${open.value ? 'is-open' : ''}`}>
        <XChoice x={at.x.value} onChange={(x) => update({ x, zoom: null })} />
        <Smoothing />
        <span class="toggles">
          <Toggle label="log x" title="Logarithmic horizontal axis" on={at.xlog.value} onChange={(xlog) => update({ xlog })} />
          <Toggle label="log y" title="Logarithmic vertical axis" on={at.ylog.value} onChange={(ylog) => update({ ylog })} />
          <Toggle label="clip" title="Hide the most extreme 1 % at each end" on={at.clip.value} onChange={(clip) => update({ clip })} />
          {baseline.value && at.x.value !== 'wall' && <Toggle label="− baseline" title={`Draw all lines minus that of ${labelOf(baseline.value.key)}`} on={at.less.value} onChange={(less) => update({ less, yzoom: {} })} />}
        </span>
        {at.group.value && (
          <select aria-label="Band around the mean of a group" title="Band around the mean of a group" value={at.band.value} onChange={({ currentTarget }) => update({ band: currentTarget.value as BandKind })}>
            <option value="std">mean ± std</option>
            <option value="range">min – max</option>
            <option value="none">mean alone</option>
          </select>
        )}
        <Choice
          label="Size of charts"
          value={at.size.value}
          options={[
            ['s', 'S'],
            ['m', 'M'],
            ['l', 'L'],
          ]}
          onChange={(size) => update({ size })}
        />
        <NewChart />
      </div>
      <Selected />
      {zoom && (
        <button type="button" class="chip zoom-chip" onClick={() => update({ zoom: null, yzoom: {} })} title="Show everything again">
          {xText(kindOfX(at.x.value) ?? 'number', zoom[0])} – {xText(kindOfX(at.x.value) ?? 'number', zoom[1]).replace('step ', '')} <Icon name="close" size={12} />
        </button>
      )}
    </div>
  )
}

/** How many of the drawn runs are selected, while the others stand back. */
function Selected() {
  const n = shown.value.filter(({ key }) => selectedKeys.value.has(key)).length
  if (n === 0) return null
  return (
    <button type="button" class="chip" onClick={() => selectAll(false)} title="Select none, so that no run stands back">
      {n} of {shown.value.length} selected <Icon name="close" size={12} />
    </button>
  )
}

function Smoothing() {
  const weight = at.smooth.value
  const set = (weight: number) => update({ smooth: Math.min(0.999, Math.max(0, weight)) })
  return (
    <>
      <label class="smoothing" title="Exponential smoothing; the raw line stays visible, faintly">
        <span>Smooth</span>
        <input type="range" min="0" max="0.999" step="0.001" value={weight} aria-label="Smoothing" onInput={({ currentTarget }) => set(currentTarget.valueAsNumber)} />
        <NumberInput min="0" max="0.999" step="0.05" value={weight} aria-label="Smoothing weight" onNumber={set} />
      </label>
      {weight > 0 && (
        <select aria-label="What smoothing weighs" title="What the weight means: over x as W&B does, the same however many points a line has; by point as TensorBoard does" value={at.smoothby.value} onChange={({ currentTarget }) => update({ smoothby: currentTarget.value as 'x' | 'point' })}>
          <option value="x">W&B</option>
          <option value="point">TensorBoard</option>
        </select>
      )}
    </>
  )
}
