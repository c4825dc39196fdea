// A view in a notebook: records from the kernel, drawn by the module of views.

import { decode } from '@msgpack/msgpack'
import { mount, type Mounted, type Pushed, type StreamStyle, type ViewOptions } from '../views'
import { drawPlotlyWith, once } from '../views/plotly'
import type { KernelLink, Message, Shown } from './kernel'

interface Settings {
  view: string | null
  title: string
  streams: ({ id: string } & StreamStyle)[]
  options: Partial<ViewOptions> & { dark?: boolean }
  notices: string[]
}

const GONE = 'The kernel is gone. These are the last records it sent.'

export function showView(el: HTMLElement, { height, points, frame: srcdoc }: { height: number; points: number; frame: string }, link: KernelLink): Shown {
  drawPlotlyWith({ frame: { srcdoc }, script: once(() => link.request({}) as Promise<string>) })
  const frame = el.appendChild(document.createElement('div'))
  frame.className = 'sightglass-notebook'
  frame.style.cssText = `width: 100%; min-height: ${height}px`
  let mounted: Mounted | null = null
  let settings: Settings | null = null
  let status = ''

  const notice = () => mounted?.setNotices([...(status ? [status] : []), ...(settings?.notices ?? [])])
  const set = (next: Settings) => {
    const { view, title, streams, options } = next
    const before = settings
    settings = next
    if (!mounted || !before) {
      const theme = options.dark === undefined ? 'auto' : options.dark ? 'dark' : 'light'
      mounted = mount(frame, { ...options, view: view ?? '', title, names: streams.map(({ id }) => id), height, theme, max_points: points })
    } else {
      if (view !== before.view) mounted.setView(view ?? '')
      if (title !== before.title) mounted.setTitle(title)
      // Only if they changed: keep the options that the reader chose since.
      if (String(Object.entries(options)) !== String(Object.entries(before.options))) mounted.setOptions(options)
      for (const { id } of before.streams) if (!streams.some((one) => one.id === id)) mounted.remove(id)
    }
    for (const { id, ...style } of streams) mounted.setStream(id, style)
    notice()
  }
  return {
    update(message: Message, buffers) {
      if (message.reset) mounted?.reset()
      if (message.settings) set(message.settings as Settings)
      const streams = message.streams as { id: string }[]
      streams.forEach(({ id }, i) => mounted?.push(decode(buffers[i]!) as Pushed, id))
    },
    showAlive(alive) {
      status = alive ? '' : GONE
      notice()
    },
    end() {
      mounted?.destroy()
      frame.remove()
    },
  }
}
