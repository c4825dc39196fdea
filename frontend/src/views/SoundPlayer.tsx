// A sound to play: its wave, which is filled as far as it was played, and where one clicks or presses arrows to go on from there.

import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Icon } from '../ui/Icon'
import { timeOf, wavePath, type Wave } from './wave'

interface PlayerProps {
  wave: Wave
  name: string
  /** Returns the address of the sound; it is asked when it is first played. Null where it cannot be played. */
  load: (() => Promise<string>) | null
  /** Tools at the end. */
  children?: ComponentChildren
}

/** The one that plays: another one stops it. */
let playing: HTMLAudioElement | null = null

export function SoundPlayer({ wave, name, load, children }: PlayerProps) {
  const { at, on, problem, toggle, seek } = usePlayer(load)
  const paths = useMemo(() => wave.peaks.map((channel) => wavePath(channel, wave.peak)), [wave])
  const done = wave.seconds > 0 ? Math.min(1, at / wave.seconds) : 0
  const turns: Record<string, number> = { ArrowLeft: -0.05, ArrowRight: 0.05, Home: -1, End: 1 }
  return (
    <div class="sound">
      <button type="button" class="sound-play" disabled={!load} title={load ? '' : 'Too long to be sent: open it on the page Media'} aria-label={`${on ? 'Pause' : 'Play'} ${name}`} onClick={toggle}>
        <Icon name={on ? 'pause' : 'play'} />
      </button>
      <div
        class="sound-wave"
        role="slider"
        tabIndex={load ? 0 : -1}
        aria-label={`Position in ${name}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(100 * done)}
        aria-valuetext={`${timeOf(at)} of ${timeOf(wave.seconds)}`}
        onClick={({ currentTarget, clientX }) => {
          const { left, width } = currentTarget.getBoundingClientRect()
          seek((wave.seconds * (clientX - left)) / width)
        }}
        onKeyDown={(event) => {
          if (event.key === ' ') toggle()
          else if (event.key in turns) seek(Math.max(0, Math.min(wave.seconds, at + turns[event.key]! * wave.seconds)))
          else return
          event.preventDefault()
          event.stopPropagation()
        }}
      >
        {paths.map((path, i) => (
          <svg key={i} viewBox={`0 -1 ${Math.max(1, wave.peaks[i]!.length)} 2`} preserveAspectRatio="none" aria-hidden="true">
            <path d={path} />
            <path d={path} class="sound-done" style={{ clipPath: `inset(0 ${100 * (1 - done)}% 0 0)` }} />
          </svg>
        ))}
      </div>
      {children}
      <p class="sound-about muted">
        {problem ? <span class="field-problem">{problem}</span> : wave.about}
        <span>
          {timeOf(at)} / {timeOf(wave.seconds)}
        </span>
      </p>
    </div>
  )
}

function usePlayer(load: PlayerProps['load']) {
  const audio = useRef<HTMLAudioElement | null>(null)
  const [at, setAt] = useState(0)
  const [on, setOn] = useState(false)
  const [problem, setProblem] = useState('')
  useEffect(() => () => audio.current?.pause(), [])
  useEffect(() => {
    if (!on) return
    let frame = requestAnimationFrame(function follow() {
      setAt(audio.current!.currentTime)
      frame = requestAnimationFrame(follow)
    })
    return () => cancelAnimationFrame(frame)
  }, [on])
  const ready = async (): Promise<HTMLAudioElement> => {
    if (audio.current) return audio.current
    const made = new Audio(await load!())
    made.addEventListener('play', () => setOn(true))
    made.addEventListener('pause', () => setOn(false))
    made.addEventListener('ended', () => setAt(0))
    return (audio.current = made)
  }
  const attempt = (what: (sound: HTMLAudioElement) => Promise<void> | void) => {
    if (!load) return
    ready()
      .then(what)
      .then(
        () => setProblem(''),
        (error: unknown) => setProblem(error instanceof Error ? error.message : String(error)),
      )
  }
  const toggle = () =>
    attempt((sound) => {
      if (!sound.paused) return sound.pause()
      if (playing !== sound) playing?.pause()
      playing = sound
      return sound.play()
    })
  const seek = (seconds: number) =>
    attempt((sound) => {
      sound.currentTime = seconds
      setAt(seconds)
    })
  return { at, on, problem, toggle, seek }
}
