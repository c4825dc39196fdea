import { useEffect, useMemo } from 'preact/hooks'
import type { Picture } from './values'

/** Images side by side, as they came. */
export function Pictures({ pictures }: { pictures: Picture[] }) {
  const urls = useMemo(() => pictures.map(({ bytes, type }) => URL.createObjectURL(new Blob([bytes.slice()], { type }))), [pictures])
  useEffect(() => () => urls.forEach(URL.revokeObjectURL), [urls])
  return (
    <div class="pictures">
      {pictures.map(({ caption }, i) => (
        <figure key={i}>
          <img src={urls[i]} alt={caption || `Image ${i}`} />
          {caption && <figcaption>{caption}</figcaption>}
        </figure>
      ))}
    </div>
  )
}
