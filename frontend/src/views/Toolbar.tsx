// The tools of a view that stands by itself, as in a notebook: there when it is pointed at or has the focus.

import { useEffect, useState } from 'preact/hooks'
import { Icon } from '../ui/Icon'
import { Popover } from '../ui/Popover'
import type { ViewOptions } from './series'

export interface ToolbarProps {
  view: string
  options: ViewOptions
  /** Whether the view can be written as SVG. */
  hasSvg: boolean
  onOptions: (change: Partial<ViewOptions>) => void
  onHome: () => void
  onSave: (kind: 'png' | 'svg' | 'csv') => Promise<void> | void
  onCopy: (kind: 'png' | 'csv') => Promise<void> | void
}

const ZOOMED = ['line', 'xy', 'scatter', 'annotated', 'line3d']
const LOGARITHMIC = ['line', 'xy', 'scatter', 'annotated']

export function Toolbar({ view, options, hasSvg, onOptions, onHome, onSave, onCopy }: ToolbarProps) {
  const [said, setSaid] = useState('')
  useEffect(() => {
    const timer = setTimeout(() => setSaid(''), 2_500)
    return () => clearTimeout(timer)
  }, [said])
  const reporting = (done: string, act: () => Promise<void> | void) => () =>
    void Promise.resolve()
      .then(act)
      .then(() => setSaid(done), (error: unknown) => setSaid(error instanceof Error ? error.message : String(error)))
  return (
    <div class="view-tools" role="toolbar" aria-label="Tools of this view">
      <span class="view-said" role="status">{said}</span>
      {ZOOMED.includes(view) && (
        <button type="button" class="icon-button" title="Show everything (0, or a double click)" aria-label="Show everything" onClick={onHome}>
          <Icon name="reset" />
        </button>
      )}
      {LOGARITHMIC.includes(view) && (
        <Popover icon="settings" label="Options of this view">
          {() => (
            <div class="view-options" role="group" aria-label="Options">
              {view === 'line' && !options.frames && (
                <label class="smoothing">
                  smooth
                  <input type="range" min="0" max="0.99" step="0.01" value={options.smooth} onInput={({ currentTarget }) => onOptions({ smooth: Number(currentTarget.value) })} />
                  <output>{options.smooth.toFixed(2)}</output>
                </label>
              )}
              <div class="toggles">
                <Switch label="log x" on={options.xlog} onChange={(xlog) => onOptions({ xlog })} />
                <Switch label="log y" on={options.ylog} onChange={(ylog) => onOptions({ ylog })} />
                <Switch label="clip" title="Hide the most extreme 1 % at each end" on={options.clip} onChange={(clip) => onOptions({ clip })} />
              </div>
            </div>
          )}
        </Popover>
      )}
      <Popover icon="download" label="Save or copy" menu>
        {(close) => {
          const item = (text: string, act: () => void) => (
            <button key={text} type="button" role="menuitem" onClick={() => (close(), act())}>
              {text}
            </button>
          )
          return [
            item('Save PNG', reporting('Saved', () => onSave('png'))),
            ...(hasSvg ? [item('Save SVG', reporting('Saved', () => onSave('svg')))] : []),
            item('Save CSV', reporting('Saved', () => onSave('csv'))),
            item('Copy picture', reporting('Copied', () => onCopy('png'))),
            item('Copy values', reporting('Copied', () => onCopy('csv'))),
          ]
        }}
      </Popover>
    </div>
  )
}

function Switch({ label, title, on, onChange }: { label: string; title?: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <button type="button" class="toggle" title={title} aria-pressed={on} onClick={() => onChange(!on)}>
      {label}
    </button>
  )
}
