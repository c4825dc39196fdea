// A mounted view as a file: lines from their model, other canvases repainted as SVG, everything else copied.

import { svgOf } from './export'
import { escaped } from './escaped'
import { svgOfCanvas } from './paint'
import type { Model } from './plot'
import type { Series } from './series'

export const X_LABELS = { step: 'step', relative: 'time since the start', wall: 'time', index: 'index', number: '' }
const [PAD, TITLE, ROW] = [12, 30, 18]

export interface Printed {
  box: HTMLElement
  title: string
  series: readonly Series[]
  /** Of a line chart. */
  model: Model | null
}

/** The view as SVG; null where it is made of other things than lines, areas and text. */
export function svgText({ box, title, series, model }: Printed): string | null {
  // Of frames the newest is named.
  if (model) return svgOf(title, model.xname || X_LABELS[model.kind], model, model.lines.filter(({ alpha = 1, earlier }) => alpha === 1 && !earlier))
  const canvas = box.querySelector<HTMLCanvasElement>('.drawn-box canvas')
  const drawn = canvas && svgOfCanvas(canvas)
  if (!drawn) return null
  const style = getComputedStyle(box)
  const [ground, text] = [style.backgroundColor, style.color]
  const [width, height] = [drawn.width + 2 * PAD, drawn.height + TITLE + PAD + ROW * (series.length > 1 ? series.length : 0)]
  const key = series.length > 1 ? series.map(({ label, style }, i) => {
    const y = TITLE + drawn.height + 12 + ROW * i
    return `<line x1="${PAD}" y1="${y}" x2="${PAD + 18}" y2="${y}" stroke="${escaped(style.color)}" stroke-width="3"/><text x="${PAD + 24}" y="${y + 4}" fill="${text}" font-size="12">${escaped(label)}</text>`
  }) : []
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif">`,
    `<rect width="${width}" height="${height}" fill="${ground}"/>`,
    `<text x="${PAD}" y="20" fill="${text}" font-size="13" font-weight="600">${escaped(title)}</text>`,
    `<g transform="translate(${PAD} ${TITLE})">`,
    drawn.text,
    '</g>',
    ...key,
    '</svg>',
  ].join('\n')
}

/** The view as it stands on the screen, as a picture that is twice as fine. */
export async function snapshot(box: HTMLElement, css: string, theme: string): Promise<Blob> {
  const { width, height } = box.getBoundingClientRect()
  const copy = box.cloneNode(true) as HTMLElement
  copy.querySelectorAll('.view-tools').forEach((tools) => tools.remove())
  const canvases = [...box.querySelectorAll('canvas')]
  copy.querySelectorAll('canvas').forEach((canvas, i) => canvas.replaceWith(imageOf(canvases[i]!, canvas.className)))
  const images = [...box.querySelectorAll('img')]
  await Promise.all([...copy.querySelectorAll('img')].map(async (image, i) => image.src.startsWith('blob:') && (image.src = await inlined(images[i]!))))
  scrolled(box, copy)
  // What the box's styles say of their host holds for an element around the copy.
  const root = document.createElement('div')
  root.className = 'host'
  root.dataset.theme = theme
  root.style.cssText = `width: ${width}px; height: ${height}px`
  const sheet = document.createElement('style')
  sheet.textContent = `${css.replace(/:host\(([^)]*)\)/g, '.host$1').replaceAll(':host', '.host')}\n* { scrollbar-width: none; }`
  root.append(sheet, copy)
  const markup = new XMLSerializer().serializeToString(root)
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`
  return painted(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, width, height)
}

function imageOf(canvas: HTMLCanvasElement, name: string): HTMLImageElement {
  const image = document.createElement('img')
  image.src = canvas.toDataURL()
  image.className = name
  const style = getComputedStyle(canvas)
  image.style.cssText = `position: ${style.position}; left: 0; top: 0; width: ${style.width}; height: ${style.height}; object-fit: fill; image-rendering: ${style.imageRendering}`
  return image
}

async function inlined(image: HTMLImageElement): Promise<string> {
  const canvas = document.createElement('canvas')
  canvas.width = image.naturalWidth
  canvas.height = image.naturalHeight
  canvas.getContext('2d')!.drawImage(image, 0, 0)
  return canvas.toDataURL()
}

/** A copy begins at the top: it is moved to where its original is scrolled to. */
function scrolled(from: HTMLElement, to: HTMLElement): void {
  const [originals, copies] = [from.querySelectorAll<HTMLElement>('*'), to.querySelectorAll<HTMLElement>('*')]
  if (originals.length !== copies.length) return
  originals.forEach((one, i) => {
    const inner = copies[i]!.firstElementChild as HTMLElement | null
    if (one.scrollTop > 0 && inner) inner.style.marginTop = `${-one.scrollTop}px`
  })
}

export async function painted(url: string, width: number, height: number): Promise<Blob> {
  const image = new Image()
  image.src = url
  await image.decode()
  const canvas = document.createElement('canvas')
  canvas.width = Math.round(width * 2)
  canvas.height = Math.round(height * 2)
  canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('The browser cannot make a PNG of this view'))), 'image/png'))
}
