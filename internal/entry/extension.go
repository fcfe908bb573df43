package entry

import (
	"encoding/json"
	"encoding/xml"
	"maps"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// Extensions are elements by namespace and name.
type Extensions map[string]map[string][]Element

// Element is an element of an extension. If it has text and elements, its children have both.
type Element struct {
	// Name is that of a child; "" for text. Namespace is nil if it is that of the parent.
	Name      string  `json:"name,omitempty"`
	Namespace *string `json:"namespace,omitempty"`
	Prefix    string  `json:"prefix,omitempty"`
	// Attributes have the names of the document, or {namespace}name if they have a namespace other than that of
	// the prefix xml.
	Attributes map[string]string `json:"attributes,omitempty"`
	Text       string            `json:"text,omitempty"`
	// Value is that of a member of a JSON Feed.
	Value    json.RawMessage `json:"value,omitempty"`
	Children []Element       `json:"children,omitempty"`
}

// read reads an element that is no field, if there is room for it.
func (x *Extensions) read(s *xmlcopy.Scanner, room *room) error {
	space, local := s.Tag.Space, s.Tag.Local
	el, err := readElement(s, space, room)
	if err == nil {
		x.add(room, space, local, el)
	}
	return err
}

// add adds an element, if there is room for its namespace.
func (x *Extensions) add(room *room, space, local string, el Element) {
	if room.take(len(space)) {
		elements := x.elements(space)
		elements[local] = append(elements[local], el)
	}
}

// elements returns the elements of a namespace, to add others.
func (x *Extensions) elements(space string) map[string][]Element {
	if *x == nil {
		*x = Extensions{}
	}
	if (*x)[space] == nil {
		(*x)[space] = map[string][]Element{}
	}
	return (*x)[space]
}

// within returns the extensions for which there is room: a long namespace is written as XML for each.
func (x Extensions) within(room *room) (kept Extensions) {
	for name, el := range x.All {
		kept.add(room, name.Space, name.Local, el)
	}
	return kept
}

// readAttributes returns the attributes of a tag except those that have no namespace and one of the names.
func readAttributes(room *room, t *xmlcopy.Tag, without ...string) (attributes map[string]string) {
	for _, at := range t.Attrs {
		name := at.Local
		switch {
		case at.Space == "" && slices.Contains(without, name):
			continue
		case at.Space == xmlcopy.XMLSpace:
			name = "xml:" + name
		case at.Space != "":
			if !room.take(len(at.Space)) {
				continue // the element is dropped, and long names of all around it would be held until then
			}
			name = "{" + at.Space + "}" + name
		}
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes[name] = at.Value
	}
	return attributes
}

// removeIndentation removes the blank texts of an element that has lines of elements only.
func (el *Element) removeIndentation() {
	isIndentation := func(c Element) bool {
		return c.Name == "" && strings.TrimSpace(c.Text) == "" && strings.Contains(c.Text, "\n")
	}
	isText := func(c Element) bool { return c.Name == "" && strings.TrimSpace(c.Text) != "" }
	if !slices.ContainsFunc(el.Children, isText) {
		el.Children = slices.DeleteFunc(el.Children, isIndentation)
	}
}

// readElement reads the element whose start tag was read last, without its name. parent is the namespace around it.
func readElement(s *xmlcopy.Scanner, parent string, room *room) (el Element, err error) {
	t := s.Tag
	el.Prefix = t.Prefix
	if t.Space != parent {
		el.Namespace = &t.Space
		room.take(len(t.Space))
	}
	el.Attributes = readAttributes(room, &t)
	var text []byte
	elements := false
	flush := func() {
		if len(text) > 0 {
			el.Children = append(el.Children, Element{Text: string(text)})
		}
		text = nil
	}
	for {
		kind, err := s.NextToken()
		switch {
		case err != nil:
			return el, err
		case kind == xmlcopy.TextToken:
			text = append(text, s.Text...)
		case kind == xmlcopy.EndToken && !elements:
			el.Text = string(text)
			return el, nil
		case kind == xmlcopy.EndToken:
			flush()
			el.removeIndentation()
			return el, nil
		default:
			flush()
			elements = true
			local := s.Tag.Local
			child, err := readElement(s, t.Space, room)
			if err != nil {
				return el, err
			}
			if child.Name = local; *room >= 0 {
				el.Children = append(el.Children, child)
			}
		}
	}
}

// in returns the elements of a namespace, of which many feeds have other letters or no slash at its end.
func (x Extensions) in(space string) map[string][]Element {
	if elements, ok := x[space]; ok {
		return elements
	}
	first := ""
	for uri := range x {
		if strings.EqualFold(strings.TrimSuffix(uri, "/"), strings.TrimSuffix(space, "/")) && (first == "" || uri < first) {
			first = uri
		}
	}
	if first == "" {
		return nil
	}
	return x[first]
}

// textOf returns the text of the first element.
func textOf(elements []Element) string {
	if len(elements) == 0 {
		return ""
	}
	return strings.TrimSpace(elements[0].Text)
}

// attributeOf returns an attribute of the first element.
func attributeOf(elements []Element, name string) string {
	if len(elements) == 0 {
		return ""
	}
	return elements[0].Attributes[name]
}

// All returns the elements in the order of their names.
func (x Extensions) All(yield func(xml.Name, Element) bool) {
	for _, space := range slices.Sorted(maps.Keys(x)) {
		for _, name := range slices.Sorted(maps.Keys(x[space])) {
			for _, el := range x[space][name] {
				if !yield(xml.Name{Space: space, Local: name}, el) {
					return
				}
			}
		}
	}
}
