package entry

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// AppendXML appends the extensions as XML that is valid anywhere. It leaves out those that are no XML, because
// any program may have written the entry.
func (x Extensions) AppendXML(b []byte) []byte {
	for name, el := range x.All {
		el.Name, el.Namespace = name.Local, &name.Space
		if own, _, ok := xmlcopy.Standalone(el.appendXML(nil, "", nil)); ok {
			b = append(b, own...)
		}
	}
	return b
}

// appendXML appends an element. space is the namespace of its parent, and scope has the bindings around it.
func (el *Element) appendXML(b []byte, space string, scope []xmlcopy.Binding) []byte {
	if el.Name == "" {
		return xmlcopy.AppendText(b, el.Text)
	}
	if el.Namespace != nil {
		space = *el.Namespace
	}
	t := xmlcopy.Tag{Prefix: el.Prefix, Local: el.Name}
	if space == "" {
		t.Prefix = ""
	}
	outer := len(scope)
	if uri, ok := resolve(scope, t.Prefix); uri != space || !ok && space != "" {
		scope = append(scope, xmlcopy.Binding{Prefix: t.Prefix, URI: space})
	}
	for _, name := range slices.Sorted(maps.Keys(el.Attributes)) {
		at := xmlcopy.Attribute{Local: name, Value: el.Attributes[name]}
		if uri, local, ok := strings.Cut(name, "}"); ok && strings.HasPrefix(uri, "{") {
			at.Local, at.Prefix = local, "ns"+strconv.Itoa(len(scope))
			scope = append(scope, xmlcopy.Binding{Prefix: at.Prefix, URI: uri[1:]})
		}
		t.Attrs = append(t.Attrs, at)
	}
	b = xmlcopy.AppendStart(b, &t, scope[outer:], t.Attrs)
	b = xmlcopy.AppendText(b, el.Text)
	for i := range el.Children {
		b = el.Children[i].appendXML(b, space, scope)
	}
	return xmlcopy.AppendEnd(b, t.Prefix, t.Local)
}

// resolve returns the namespace of a prefix.
func resolve(scope []xmlcopy.Binding, prefix string) (uri string, ok bool) {
	for _, b := range slices.Backward(scope) {
		if b.Prefix == prefix {
			return b.URI, true
		}
	}
	return "", false
}
