package config

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// AddFeeds returns a configuration file with the content data to which feeds are added, behind those that it has.
// Only text is inserted: comments, order and form of everything else stay, but for the {} of an empty mapping.
// The names must be valid, and not be in the file. The result is not checked by [Load].
//
// The text is inserted where the feeds most likely end, and then parsed: it must have exactly the old content and
// the new feeds. YAML has many forms, and a feed must never get into another mapping, or into a text of several lines.
func AddFeeds(data []byte, feeds []Entry) ([]byte, error) {
	old := &yaml.Node{Kind: yaml.MappingNode}
	root, err := parseYAML(data)
	switch {
	case err == nil && root.Kind != yaml.MappingNode:
		return nil, errors.New("the file is not a mapping of keys, such as feeds: {...}")
	case err == nil:
		old = root
	case err.Text != emptyFile:
		return nil, err
	}
	f := newFeedsEditor(data, old, feeds)
	for _, changed := range f.candidates() {
		if root, err := parseYAML(changed); err == nil && isExtended(old, root, feeds) {
			return changed, nil
		}
	}
	return nil, errors.New("feeds cannot be added to YAML of this form; write them into the file:\n" +
		strings.TrimSuffix(f.block("  ", "  ", false), "\n"))
}

// feedsEditor inserts feeds into the text of a configuration file.
type feedsEditor struct {
	data  []byte
	lines []int // where the lines begin
	eol   string
	root  *yaml.Node
	feeds []Entry
	// key and value are the nodes of the mapping feeds; nil if it is missing.
	key, value *yaml.Node
	// end is the offset behind the last line that can be part of the mapping.
	end int
}

// lineBreak matches what the YAML parser counts as the end of a line.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

// documentEnd matches the line that ends the document.
var documentEnd = regexp.MustCompile(`(?m)^\.\.\.(\s|$)`)

func newFeedsEditor(data []byte, root *yaml.Node, feeds []Entry) *feedsEditor {
	f := &feedsEditor{data: data, lines: []int{0}, eol: "\n", root: root, feeds: feeds, end: len(data)}
	for _, at := range lineBreak.FindAllIndex(data, -1) {
		f.lines = append(f.lines, at[1])
	}
	if bytes.Contains(data, []byte("\r\n")) {
		f.eol = "\r\n"
	}
	if at := documentEnd.FindIndex(data); at != nil {
		f.end = at[0]
	}
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != "feeds" {
			continue
		}
		f.key, f.value = root.Content[i], root.Content[i+1]
		if i+2 < len(root.Content) {
			f.end = f.lines[root.Content[i+2].Line-1]
		}
	}
	return f
}

// candidates returns the changed files that may be right, the best one first.
func (f *feedsEditor) candidates() [][]byte {
	isFlow := func(n *yaml.Node) bool { return n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 }
	switch {
	case isFlow(f.root) && f.key == nil:
		return f.insertFlow(f.root, []string{quoteScalar("feeds", true) + ": {" + strings.Join(f.pairs(true), ", ") + "}"})
	case f.key == nil:
		return f.insertNewMapping()
	case isFlow(f.value) && len(f.value.Content) == 0 && !isFlow(f.root):
		return append(f.replaceEmpty(), f.insertFlow(f.value, f.pairs(false))...)
	case isFlow(f.value):
		return f.insertFlow(f.value, f.pairs(isFlow(f.root)))
	case isNull(f.value):
		indent := strings.Repeat(" ", f.key.Column-1) + "  "
		return f.insertBlock(f.lineAfter(f.key.Line), f.block(indent, "  ", false), len(indent))
	case f.value.Kind == yaml.MappingNode:
		first, value := f.value.Content[0], f.value.Content[1]
		indent, step := strings.Repeat(" ", first.Column-1), "  "
		if value.Kind == yaml.MappingNode && !isFlow(value) {
			step = strings.Repeat(" ", max(1, value.Content[0].Column-first.Column))
		}
		return f.insertBlock(f.lineAfter(f.value.Content[len(f.value.Content)-2].Line), f.block(indent, step, isFlow(value)), len(indent))
	}
	return nil
}

// insertNewMapping appends the key feeds with its mapping to the document.
func (f *feedsEditor) insertNewMapping() [][]byte {
	indent := ""
	if len(f.root.Content) > 0 {
		indent = strings.Repeat(" ", f.root.Content[0].Column-1)
	}
	text, empty := indent+"feeds:"+f.eol+f.block(indent+"  ", "  ", false), f.eol
	if before := f.data[:f.end]; len(bytes.TrimSpace(before)) == 0 || bytes.HasSuffix(before, []byte(f.eol+f.eol)) {
		empty = ""
	}
	return [][]byte{f.insertLines(f.end, empty+text), f.insertLines(f.end, text)}
}

// replaceEmpty replaces the {} of an empty mapping, in one line, by lines below.
func (f *feedsEditor) replaceEmpty() [][]byte {
	begin, end, _, ok := f.flowEnd(f.value)
	after := f.lineAfter(f.value.Line)
	if !ok || end >= after {
		return nil
	}
	indent := strings.Repeat(" ", f.key.Column-1) + "  "
	line := string(f.data[begin:after])
	rest := line[end-begin+1:]
	head := f.data[:begin]
	if strings.TrimSpace(rest) == "" {
		head = bytes.TrimRight(head, " ")
	}
	if !strings.HasSuffix(rest, "\n") {
		rest += f.eol
	}
	return [][]byte{slices.Concat(head, []byte(strings.TrimLeft(rest, " ")), []byte(f.block(indent, "  ", false)), f.data[after:])}
}

// insertBlock inserts lines behind the last line of the mapping, or, if that is not right, before the next key.
// from is the offset of the first line that can be the last one, and indent that of the names of feeds.
func (f *feedsEditor) insertBlock(from int, text string, indent int) [][]byte {
	at := from
	for offset, line := range f.linesFrom(from) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			at = offset + len(line)
		}
	}
	// Comments that are indented as feeds and their keys are, as they are or without their #, belong to the feed.
	for offset, line := range f.linesFrom(at) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" {
			continue
		}
		text := strings.TrimLeft(line, " \t")
		if own := strings.TrimLeft(text[1:], " \t"); len(line)-len(text) < indent && len(text)-1-len(own) < indent {
			break
		}
		at = offset + len(line)
	}
	return [][]byte{f.insertLines(at, text), f.insertLines(f.end, text)}
}

// insertLines inserts lines at the begin of a line, or at the end of a file whose last line does not end.
func (f *feedsEditor) insertLines(at int, text string) []byte {
	if before := f.data[:at]; len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) {
		text = f.eol + text
	}
	return slices.Concat(f.data[:at], []byte(text), f.data[at:])
}

// linesFrom yields the lines between an offset and the end of the mapping, with their offsets.
func (f *feedsEditor) linesFrom(offset int) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for line := range strings.Lines(string(f.data[min(offset, f.end):f.end])) {
			if !yield(offset, line) {
				return
			}
			offset += len(line)
		}
	}
}

// lineAfter returns where the line after a line begins, or the end of the file.
func (f *feedsEditor) lineAfter(line int) int {
	if line < len(f.lines) {
		return f.lines[line]
	}
	return len(f.data)
}

// insertFlow inserts pairs before the brace that ends a mapping in braces: each on a line of its own if those in it
// are, or if there are several.
func (f *feedsEditor) insertFlow(n *yaml.Node, pairs []string) [][]byte {
	begin, _, last, ok := f.flowEnd(n)
	if !ok {
		return nil
	}
	space := " "
	if below := n.Content; len(below) > 0 && below[0].Line > n.Line {
		space = f.eol + strings.Repeat(" ", below[0].Column-1)
	} else if len(pairs) > 1 {
		space = f.eol + "  "
	}
	text := strings.Join(pairs, ","+space)
	switch {
	case last == begin:
	case f.data[last] == ',':
		text = space + text
	default:
		text = "," + space + text
	}
	return [][]byte{slices.Concat(f.data[:last+1], []byte(text), f.data[last+1:])}
}

// flowEnd returns the offsets of the braces of a mapping, and of the last character before the second one that is
// neither a space nor in a comment. begin is negative if there is no such mapping.
func (f *feedsEditor) flowEnd(n *yaml.Node) (begin, end, last int, ok bool) {
	begin = f.lines[n.Line-1]
	if begin == 0 {
		begin = len(f.data) - len(bytes.TrimPrefix(f.data, []byte("\xef\xbb\xbf")))
	}
	for range n.Column - 1 { // a column is a character
		_, size := utf8.DecodeRune(f.data[begin:])
		begin += size
	}
	brace := bytes.IndexByte(f.data[begin:], '{') // behind an anchor
	if brace < 0 {
		return -1, 0, 0, false
	}
	begin += brace
	depth, inPlain := 0, false
	for i := begin; i < len(f.data); i++ {
		c, isFirst := f.data[i], i == begin || strings.IndexByte(" \t\r\n", f.data[i-1]) >= 0
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case c == '#' && isFirst:
			next := bytes.IndexByte(f.data[i:], '\n')
			if next < 0 {
				return begin, 0, 0, false
			}
			i += next
			continue
		case c == '{' || c == '[':
			depth++
			inPlain = false
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return begin, i, last, true
			}
			inPlain = false
		case c == ',' || c == ':' && !inPlain || c == ':' && i+1 < len(f.data) && strings.IndexByte(" \t\r\n,[]{}", f.data[i+1]) >= 0:
			inPlain = false
		case (c == '"' || c == '\'') && !inPlain:
			for i++; i < len(f.data) && f.data[i] != c; i++ {
				if c == '"' && f.data[i] == '\\' {
					i++
				}
			}
		default:
			inPlain = true
		}
		last = i
	}
	return begin, 0, 0, false
}

// block returns the feeds as lines.
func (f *feedsEditor) block(indent, step string, flow bool) string {
	var b strings.Builder
	for _, e := range f.feeds {
		b.WriteString(indent + quoteScalar(e.Name, false) + ":")
		if url := quoteScalar(escapeVariables(e.URL), false); flow {
			b.WriteString(" {url: " + url + "}" + f.eol)
		} else {
			b.WriteString(f.eol + indent + step + "url: " + url + f.eol)
		}
	}
	return b.String()
}

// pairs returns the feeds as pairs for a mapping in braces.
func (f *feedsEditor) pairs(isJSON bool) []string {
	pairs := make([]string, len(f.feeds))
	for i, e := range f.feeds {
		pairs[i] = quoteScalar(e.Name, isJSON) + ": {" + quoteScalar("url", isJSON) + ": " + quoteScalar(escapeVariables(e.URL), isJSON) + "}"
	}
	return pairs
}

// quoteScalar returns text as a scalar: in quotes if it needs them, or if it is part of JSON.
func quoteScalar(text string, isJSON bool) string {
	if n := (&yaml.Node{Kind: yaml.ScalarNode, Value: text}); !isJSON && plainText.MatchString(text) && n.ShortTag() == "!!str" {
		return text
	}
	return strconv.Quote(text) // URLs and names have no control characters
}

// isExtended reports whether a document has exactly the content of an old one, and feeds behind those in it.
func isExtended(old, changed *yaml.Node, feeds []Entry) bool {
	was, is := old.Content, changed.Content
	if changed.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(is); i += 2 {
		if is[i].Value != "feeds" {
			continue
		}
		before := &yaml.Node{}
		if i < len(was) && was[i].Value == "feeds" {
			before, was = was[i+1], slices.Concat(was[:i], was[i+2:])
		}
		now := is[i+1].Content
		is = slices.Concat(is[:i], is[i+2:])
		n := len(now) - 2*len(feeds)
		if n != len(before.Content) || !slices.EqualFunc(before.Content, now[:n], isSame) {
			return false
		}
		for j, e := range feeds {
			name, feed := now[n+2*j], now[n+2*j+1]
			if name.Value != e.Name || len(feed.Content) != 2 || feed.Content[0].Value != "url" || feed.Content[1].Value != escapeVariables(e.URL) {
				return false
			}
		}
		return slices.EqualFunc(was, is, isSame)
	}
	return false
}

// isSame reports whether two nodes have the same content. Comments are not compared: no byte of them was changed.
func isSame(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && a.Anchor == b.Anchor && a.Style == b.Style && slices.EqualFunc(a.Content, b.Content, isSame)
}
