// One stroke, one size: the page's icons, drawn here so that none has to be fetched.

const PATHS = {
  pin: 'M9 3h6l-1 6 4 4H6l4-4zM12 13v8',
  eye: 'M2 12s4-7 10-7 10 7 10 7-4 7-10 7S2 12 2 12zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z',
  solo: 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4z',
  download: 'M12 4v11m-5-5 5 5 5-5M4 20h16',
  expand: 'M14 4h6v6M10 20H4v-6M20 4l-7 7M4 20l7-7',
  close: 'M6 6l12 12M18 6 6 18',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5 19 19M5 19l1.5-1.5M17.5 6.5 19 5',
  moon: 'M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z',
  system: 'M4 5h16v11H4zM9 20h6M12 16v4',
  help: 'M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18v.01',
  copy: 'M8 8h12v12H8zM16 8V4H4v12h4',
  link: 'M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1',
  bell: 'M6 17V11a6 6 0 0 1 12 0v6l2 2H4zM10 21h4',
  bookmark: 'M7 4h10v16l-5-4-5 4z',
  down: 'M6 9l6 6 6-6',
  list: 'M4 6h16M4 12h16M4 18h16',
  layers: 'M12 3 3 8l9 5 9-5zM4 12.5l8 4.5 8-4.5M4 16.5l8 4.5 8-4.5',
  palette: 'M12 3a9 9 0 1 0 0 18c1.6 0 2-1.2 1.4-2.3-.8-1.4.2-2.7 1.6-2.7h2a4 4 0 0 0 4-4c0-5-4-9-9-9zM8 9v.01M12 7v.01M16 9v.01',
  reset: 'M4 12a8 8 0 1 0 3-6.2M4 4v4h4',
  play: 'M7 4l13 8-13 8z',
  pause: 'M8 5v14M16 5v14',
  stop: 'M6 6h12v12H6z',
  record: 'M12 6a6 6 0 1 0 0 12 6 6 0 0 0 0-12z',
  warning: 'M12 4 2.5 20h19zM12 10v5M12 17.5v.01',
  plus: 'M12 5v14M5 12h14',
  pencil: 'M4 20l1-5L16 4l4 4L9 19zM14 6l4 4',
  print: 'M7 8V3h10v5M7 17H4V8h16v9h-3M7 14h10v7H7z',
  image: 'M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 8.5v.01',
  settings: 'M4 7h10M18 7h2M4 17h2M10 17h10M16 4.5v5M8 14.5v5',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  )
}
