package feedxml

import (
	"bytes"
	"encoding/xml"
	"strings"
)

const (
	// mostAuthors is how many authors of a document are kept.
	mostAuthors = 10
	// longestAuthor is how long an author may be, in bytes.
	longestAuthor = 1 << 10
)

// readAuthor reads an author of a feed: its name with the address of its mail behind
// it, as in "Name <a@b.example>", or the one of them that it has.
func readAuthor(content []byte) string {
	if len(content) > longestAuthor {
		return ""
	}
	d := xml.NewDecoder(bytes.NewReader(content))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var name, email, in string
	for {
		token, err := d.RawToken()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			switch in {
			case "name":
				name += string(token)
			case "email":
				email += string(token)
			}
		}
	}
	name, email = strings.TrimSpace(name), strings.TrimSpace(email)
	if name != "" && email != "" {
		return name + " <" + email + ">"
	}
	return name + email
}
