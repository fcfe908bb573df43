package feedxml

// mostChildren is the maximum number of children of an element that have a meaning. It
// bounds the memory for an element that consists of ids only.
const mostChildren = 10_000

// element is an element that was read as a whole. Its positions, and those of
// its children, count from its first byte, which is the first unread one.
type element struct {
	tag      tag
	close    int // start of the end tag; the end, if the element is empty
	end      int
	children []child
	// excluded are the elements at any depth that may have no part in the hash, and open the indexes
	// of those that have not ended.
	excluded []excluded
	open     []int
}

// child is a child of an element that may have a meaning.
type child struct {
	start, nameEnd, tagEnd int
	close, end             int
	attributes             int
}

// reset makes el an element that consists of its start tag so far.
func (el *element) reset(t tag) {
	*el = element{tag: t, close: t.end, end: t.end, children: el.children[:0], excluded: el.excluded[:0], open: el.open[:0]}
}

// addChild records the child at b[i:] if it may have a meaning.
func (el *element) addChild(b []byte, i int, t tag) *syntaxError {
	if _, local := cutPrefix(b[i+1 : t.nameEnd]); !isMeaningful(local) {
		return nil
	}
	if len(el.children) == mostChildren {
		return &syntaxError{at: i, detail: "an element has too many children with ids, links and dates", limit: mostChildren}
	}
	c := child{start: i, nameEnd: t.nameEnd, tagEnd: t.end, attributes: t.attributes}
	if t.empty {
		c.close, c.end = t.end, t.end
	}
	el.children = append(el.children, c)
	return nil
}

// closeChild records the end of a child that begins at start, if it was recorded.
func (el *element) closeChild(start, at, end int) {
	if n := len(el.children) - 1; n >= 0 && el.children[n].end == 0 && el.children[n].start == start {
		el.children[n].close, el.children[n].end = at, end
	}
}

// addExcluded records the element at i, which may have no part in the hash. Elements above the limit have one.
func (el *element) addExcluded(i int, t tag) {
	if len(el.excluded) == mostChildren {
		return
	}
	x := excluded{start: i, nameEnd: t.nameEnd}
	if t.empty {
		x.end = t.end
	} else {
		el.open = append(el.open, len(el.excluded))
	}
	el.excluded = append(el.excluded, x)
}

// closeExcluded records the end of an element that begins at start, if it was recorded.
func (el *element) closeExcluded(start, end int) {
	if n := len(el.open) - 1; n >= 0 && el.excluded[el.open[n]].start == start {
		el.excluded[el.open[n]].end = end
		el.open = el.open[:n]
	}
}
