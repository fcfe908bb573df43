package entry

import "github.com/feedbridge/feedbridge/internal/xmlcopy"

// fieldReader reads the elements of an entry that are its fields.
type fieldReader struct {
	Entry
	*room
	permalink string // the guid of an item, if it is a page
	standIns  []standIn
}

// standIn is an element that is a field if the entry has no element that means the same and more exactly.
type standIn struct {
	name, base string
	tag        xmlcopy.Tag
	el         Element
}

// readExtension reads an element that is no field.
func (a *fieldReader) readExtension(s *xmlcopy.Scanner) error {
	return a.Extensions.read(s, a.room)
}

// keepDate sets a date that was not set before. A text that is no date is an extension.
func (a *fieldReader) keepDate(at *string, t *xmlcopy.Tag, value string) {
	if _, ok := FormatTime(value); ok {
		setIfEmpty(at, value)
	} else if value != "" {
		a.Extensions.add(a.room, t.Space, t.Local, Element{Prefix: t.Prefix, Text: value})
	}
}

func setIfEmpty(at *string, value string) {
	if *at == "" {
		*at = value
	}
}
