// The settings of one chart, which go over those of the page.

import { NumberInput } from '../../ui/NumberInput'
import { Choice, Toggle } from '../../ui/parts'
import { Popover } from '../../ui/Popover'
import { at } from '../../state/state'
import { resetCard, setCard, type Drawing } from './cards'
import { moveCard } from './order'
import { XChoice } from './XChoice'

interface CardMenuProps {
  id: string
  name: string
  section: string
  drawing: Drawing
}

export function CardMenu({ id, name, section, drawing: { card, x, smooth, xlog, ylog, clip, points } }: CardMenuProps) {
  const set = (patch: Parameters<typeof setCard>[1]) => setCard(id, patch)
  const changed = Object.keys(card).length > 0
  return (
    <Popover icon="settings" label={`Settings of ${name}`} lit={changed}>
      {(close) => (
        <div class="card-menu" role="group" aria-label="This chart alone">
          <XChoice x={x} onChange={(to) => set({ x: to === at.x.peek() ? undefined : to })} />
          <label class="smoothing">
            <span>Smooth</span>
            <input type="range" min="0" max="0.999" step="0.001" value={smooth} disabled={points} aria-label="Smoothing of this chart" onInput={({ currentTarget }) => set({ smooth: currentTarget.valueAsNumber })} />
            <NumberInput min="0" max="0.999" step="0.05" value={smooth} disabled={points} aria-label="Smoothing weight of this chart" onNumber={(weight) => set({ smooth: Math.min(0.999, Math.max(0, weight)) })} />
          </label>
          <span class="toggles">
            <Toggle label="log x" title="Logarithmic horizontal axis" on={xlog} onChange={(on) => set({ xlog: on })} />
            <Toggle label="log y" title="Logarithmic vertical axis" on={ylog} onChange={(on) => set({ ylog: on })} />
            <Toggle label="clip" title="Hide the most extreme 1 % at each end" on={clip} onChange={(on) => set({ clip: on })} />
            <Toggle label="points" title="Points instead of lines" on={points} onChange={(on) => set({ points: on || undefined })} />
          </span>
          {section && (
            <>
              <span class="card-menu-row">
                <span class="muted">Width</span>
                <Choice
                  label="Width"
                  value={String(card.wide ?? 1)}
                  options={[
                    ['1', '1×'],
                    ['2', '2×'],
                    ['0', 'Full'],
                  ]}
                  onChange={(wide) => set({ wide: wide === '1' ? undefined : Number(wide) })}
                />
                <span class="muted">Height</span>
                <Choice
                  label="Height"
                  value={String(card.tall ?? 1)}
                  options={[
                    ['1', '1×'],
                    ['2', '2×'],
                  ]}
                  onChange={(tall) => set({ tall: tall === '1' ? undefined : Number(tall) })}
                />
              </span>
              <span class="card-menu-row">
                <button type="button" class="button" onClick={() => moveCard(section, id, -1)}>
                  ← Move
                </button>
                <button type="button" class="button" onClick={() => moveCard(section, id, 1)}>
                  Move →
                </button>
              </span>
            </>
          )}
          <button type="button" class="button" disabled={!changed} onClick={() => (close(), resetCard(id))}>
            As the page sets it
          </button>
        </div>
      )}
    </Popover>
  )
}
