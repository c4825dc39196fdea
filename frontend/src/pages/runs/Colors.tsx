// The colour of a run or a group: the next one, or one of the palette.

import { setColor } from '../../data/looks'
import { IconButton } from '../../ui/parts'
import { LINES } from '../../views/palette'

/** The reader's button for the next colour. */
export function NextColor({ name, label, color }: { name: string; label: string; color: string }) {
  const place = LINES.findIndex((line) => line === color)
  return <IconButton icon="palette" label={`Next colour for ${label}`} onClick={() => setColor(name, (place + 1) % LINES.length)} />
}

export function Colors({ name, label, color }: { name: string; label: string; color: string }) {
  return (
    <div class="colors" role="radiogroup" aria-label={`Colour of ${label}`}>
      {LINES.map((line, place) => (
        <button key={line} type="button" role="radio" aria-checked={line === color} aria-label={`Colour ${place + 1}`} style={{ background: line }} onClick={() => setColor(name, place)} />
      ))}
    </div>
  )
}
