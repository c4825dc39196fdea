// The latest sounds of each stream.

import { useEffect, useMemo } from 'preact/hooks'
import { number } from './format'
import type { Series } from './series'
import { SoundPlayer } from './SoundPlayer'
import { soundsOf } from './values'
import type { Sound } from './wave'

export function Sounds({ series }: { series: readonly Series[] }) {
  const shown = series.flatMap(({ id, label, records }) => {
    const last = records.values.filter(({ value }) => soundsOf(value).length > 0).at(-1)
    return last ? [{ key: `${id} ${last.index}`, label, step: last.step, sounds: soundsOf(last.value) }] : []
  })
  if (!shown.length) return <p class="chart-empty">No sound yet</p>
  return (
    <div class="sounds" role="group" aria-label="Sounds">
      {shown.map(({ key, label, step, sounds }) => (
        <section key={key}>
          <p class="muted">
            {series.length > 1 && `${label} · `}step {number(step, 10)}
          </p>
          {sounds.map((sound, i) => (
            <Player key={i} sound={sound} name={`${label}${sounds.length > 1 ? ` ${i + 1}` : ''}, step ${number(step, 10)}`} />
          ))}
        </section>
      ))}
    </div>
  )
}

function Player({ sound, name }: { sound: Sound; name: string }) {
  const { wav } = sound
  const url = useMemo(() => (wav ? URL.createObjectURL(new Blob([wav.slice()], { type: 'audio/wav' })) : ''), [wav])
  useEffect(() => () => URL.revokeObjectURL(url), [url])
  return <SoundPlayer wave={sound} name={name} load={wav ? () => Promise.resolve(url) : null} />
}
