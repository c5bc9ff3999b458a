// What is on a page with less contrast than WCAG 2.2 AA asks for: 4.5 for texts, 3 for large ones, lines and borders.
(() => {
  const parts = (text) => { const all = text.match(/[\d.]+/g).map(Number); return [...all.slice(0, 3), all[3] ?? 1]; };
  const over = (top, back, more = 1) => { const part = top[3] * more;
    return [0, 1, 2].map((n) => top[n] * part + back[n] * (1 - part)); };
  const light = (colour) => { const [r, g, b] = colour.map((value) => { const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (one, other) => { const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05); };
  const opacity = (node) => { let all = 1; for (let one = node; one; one = one.parentElement) all *= Number(getComputedStyle(one).opacity);
    return all; };
  const behind = (node) => { const all = [];
    for (let one = node; one; one = one.parentElement) {
      const box = one.localName === 'g' && one.querySelector(':scope > rect');
      if (box) all.push(parts(getComputedStyle(box).fill));
      const own = parts(getComputedStyle(one).backgroundColor);
      if (own[3] > 0) all.push(own);
    }
    return all.reverse().reduce((back, top) => over(top, back), [255, 255, 255]); };
  const bad = [];
  let count = 0;
  const measure = (what, node, colour, back, least) => {
    count += 1;
    const found = ratio(over(parts(colour), back, opacity(node)), back);
    if (found < least) bad.push(`${found.toFixed(2)} < ${least}: ${what}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.localName === 'title' || node.disabled)
      continue;
    const style = getComputedStyle(node), drawn = node instanceof SVGElement;
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    measure(`text ${walker.currentNode.data.slice(0, 60)}`, node, drawn ? style.fill : style.color, behind(node), large ? 3 : 4.5);
  }
  for (const node of document.querySelectorAll('input, button')) {
    if (!node.checkVisibility()) continue;
    const style = getComputedStyle(node), around = behind(node.parentElement);
    if (node.placeholder) measure('placeholder', node, getComputedStyle(node, '::placeholder').color, behind(node), 4.5);
    if (style.borderTopStyle !== 'none' && parseFloat(style.borderTopWidth) > 0)
      measure(`border of ${node.id || node.textContent}`, node, style.borderTopColor, around, 3);
  }
  for (const node of document.querySelectorAll('#canvas .node rect, #canvas path, .charts polyline, .charts .mark'))
    if (node.checkVisibility())
      measure(`line of ${node.parentElement.getAttribute('class')}`, node, getComputedStyle(node).stroke,
        behind(node.closest('svg').parentElement), 3);
  return { bad, count };
})()