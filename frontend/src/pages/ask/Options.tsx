// The options of a panel: those that its view has.

import { NumberInput } from '../../ui/NumberInput'
import { Choice, Toggle } from '../../ui/parts'
import type { ViewOptions } from '../../views/series'
import type { AskedPanel } from './panels'

type Name = 'x' | 'smooth' | 'log' | 'frames' | 'over' | 'last'
const OF_VIEW: Record<string, Name[]> = {
  line: ['x', 'smooth', 'log', 'frames', 'last'],
  xy: ['log', 'frames', 'last'],
  scatter: ['log', 'frames', 'last'],
  annotated: ['log', 'frames', 'last'],
  line3d: ['frames', 'last'],
  bars: ['frames'],
  histogram: ['over', 'frames', 'last'],
  heatmap: ['frames'],
  images: ['frames'],
  picture: ['frames'],
  log: ['last'],
  table: ['last'],
}

export function Options({ view, panel, onChange }: { view: string; panel: AskedPanel; onChange: (panel: AskedPanel) => void }) {
  const { options } = panel
  const set = (change: Partial<ViewOptions>) => onChange({ ...panel, options: { ...options, ...change } })
  const has = (name: Name) => (OF_VIEW[view] ?? []).includes(name)
  return (
    <div class="ask-options" role="group" aria-label="Options">
      {has('x') && (
        <Choice
          label="Horizontal axis"
          value={options.x}
          options={[
            ['step', 'step'],
            ['relative', 'relative'],
            ['wall', 'wall'],
            ['index', 'index'],
          ]}
          onChange={(x) => set({ x })}
        />
      )}
      {has('smooth') && (
        <label class="smoothing">
          smooth
          <input type="range" min="0" max="0.99" step="0.01" value={options.smooth} onInput={({ currentTarget }) => set({ smooth: Number(currentTarget.value) })} />
          <output>{options.smooth}</output>
        </label>
      )}
      {has('log') && (
        <span class="toggles">
          <Toggle label="log x" on={options.xlog} onChange={(xlog) => set({ xlog })} />
          <Toggle label="log y" on={options.ylog} onChange={(ylog) => set({ ylog })} />
        </span>
      )}
      {has('over') && !options.frames && (
        <Choice
          label="Over the steps"
          value={options.over}
          options={[
            ['ridge', 'ridge'],
            ['heat', 'heat map'],
            ['latest', 'latest'],
          ]}
          onChange={(over) => set({ over })}
        />
      )}
      {has('frames') && <Toggle label="frames" title="Each record is one complete frame, with older ones fading behind" on={options.frames} onChange={(frames) => set({ frames })} />}
      {has('frames') && options.frames && (
        <label class="ask-number">
          history
          <NumberInput min="0" max="100" value={options.history} onNumber={(history) => set({ history: Math.min(100, Math.max(0, Math.round(history))) })} />
        </label>
      )}
      {has('last') && !options.frames && (
        <label class="ask-number" title="Show only this many of the newest; 0 shows all">
          newest
          <NumberInput min="0" step="100" value={options.last} onNumber={(last) => set({ last: Math.max(0, Math.round(last)) })} />
        </label>
      )}
    </div>
  )
}
