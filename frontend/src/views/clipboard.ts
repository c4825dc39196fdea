// The clipboard, on pages that are secure and on those that are not.

export async function copyPicture(picture: Promise<Blob>): Promise<void> {
  if (!navigator.clipboard?.write) throw new Error('Browsers copy pictures only on secure pages: save it instead')
  await navigator.clipboard.write([new ClipboardItem({ 'image/png': picture })])
}

export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  // On pages that are not secure there is only the old way.
  const area = document.body.appendChild(document.createElement('textarea'))
  area.value = text
  area.select()
  const done = document.execCommand('copy')
  area.remove()
  if (!done) throw new DOMException('The browser refused to copy', 'NotAllowedError')
}
