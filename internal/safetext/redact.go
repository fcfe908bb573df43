package safetext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Parameters are the names of URL parameters whose values are secrets. They are
// compared without regard to case. A longer name counts too if it ends with one of
// them behind a hyphen, an underscore or a point, or with a capital letter:
// X-Amz-Signature, client_secret, clientSecret.
var Parameters = []string{
	"key", "api-key", "api_key", "apikey", "access_key", "accesskey", "token", "access_token", "accesstoken", "sig", "signature",
	"password", "passwd", "passphrase", "pass", "pwd", "secret", "auth", "authorization", "credential", "credentials", "jwt", "session", "sessionid", "sid",
}

// mask replaces a secret.
const mask = "***"

// Redactor hides the secrets of URLs: user names and passwords, and the values of
// secret parameters in queries, fragments and paths. It finds them in URLs that are
// percent-encoded within another URL or escaped in JSON, too. The nil Redactor is
// ready for use and knows [Parameters]. A Redactor is safe for concurrent use.
type Redactor struct {
	parameters map[string]bool // in lower case
	file       string          // the configuration file that commands in texts need; empty for none
}

var standard = NewRedactor()

// NewRedactor returns a Redactor for [Parameters] and the parameters with the given
// names.
func NewRedactor(names ...string) *Redactor {
	r := &Redactor{parameters: map[string]bool{}}
	for _, name := range Parameters {
		r.parameters[name] = true
	}
	for _, name := range names {
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if name != "" {
			r.parameters[strings.ToLower(name)] = true
		}
	}
	return r
}

// CheckParameter returns an error for a name that cannot be a parameter's name, so that a
// Redactor would never find it. The error quotes the name up to the first invalid character,
// because a secret may follow.
func CheckParameter(name string) error {
	decoded, err := url.QueryUnescape(name)
	if err != nil {
		decoded = name
	}
	const may = "no parameter has this name, so nothing would be hidden; a name has none of / ; ! ? & # = and 200 bytes at most"
	if i := strings.IndexFunc(decoded, func(c rune) bool { return c == '=' || c < utf8.RuneSelf && isSeparator(byte(c)) }); i >= 0 {
		return fmt.Errorf("%q: %s", Clip(decoded[:i+1], 50)+"…", may)
	}
	if len(decoded) > longestName {
		return fmt.Errorf("%q: %s", Clip(decoded, 50), may)
	}
	return nil
}

// Text hides the secrets of all URLs in a text. A URL ends at white space, and at a
// character that no URI has, such as a quote, unless a letter or a digit follows it.
func (r *Redactor) Text(text string) string { return r.redactText(text, false) }

// URL returns a URL without its user name and password, and with its secret
// parameters hidden. The rest of it stays as it is written.
func (r *Redactor) URL(raw string) string {
	if strings.IndexByte(raw, '@') >= 0 {
		if u, err := url.Parse(raw); err == nil && u.User != nil {
			u.User = nil
			raw = u.String()
		}
	}
	return r.redactText(raw, true)
}

// Clip cleans a text, hides its secrets, and limits its length, as the function
// [Clip] does.
func (r *Redactor) Clip(text string, most int) string {
	return shorten(r.NameFile(r.Text(Clean(text))), most)
}

// WithFile returns a Redactor that adds -c and the name of a configuration file to the commands that texts quote.
func (r *Redactor) WithFile(file string) *Redactor {
	if r == nil {
		r = standard
	}
	return &Redactor{r.parameters, file}
}

// ownCommands are the quoted commands that need the configuration.
var ownCommands = regexp.MustCompile(`'feedbridge (?:checkpoint (?:set|reset)|add|check|pause|reload|resume|run|status)\b(?: -c\b)?`)

// NameFile adds the configuration file to the commands in a text that do not name one.
func (r *Redactor) NameFile(text string) string {
	if r == nil || r.file == "" || !strings.Contains(text, "'feedbridge ") {
		return text
	}
	return ownCommands.ReplaceAllStringFunc(text, func(command string) string {
		if strings.HasSuffix(command, " -c") {
			return command
		}
		return command + " -c " + r.file
	})
}

// excerptContext is the number of bytes after an excerpt that are read to decide whether it
// ends within a secret.
const excerptContext = 4 << 10

// Excerpt returns the start of a text in at most most characters, cleaned and with its
// secrets hidden. It ends with … if the text has more. It reads a few kilobytes of the
// text, however long that is.
func (r *Redactor) Excerpt(text string, most int) string {
	isWhole := len(text) <= most*4+excerptContext
	if !isWhole {
		text = strings.ToValidUTF8(text[:most*4+excerptContext], "")
	}
	runes := []rune(r.Text(Clean(text)))
	if isWhole && len(runes) <= most {
		return string(runes)
	}
	return string(runes[:max(0, min(len(runes), most-1))]) + "…"
}

// Excerpt returns the start of a text for an error or a log line: at most 160 characters,
// cleaned, without the values of [Parameters]. It keeps the start, because a secret is
// recognised by the name before it.
func Excerpt(text string) string {
	var redact *Redactor
	return redact.Excerpt(text, 160)
}

func (r *Redactor) redactText(text string, isURL bool) string {
	if !strings.ContainsAny(text, `=@%\`) && !mayHavePassword(text) {
		return text
	}
	if r == nil {
		r = standard
	}
	return r.hideSecrets(text, decodeEscapes(text), isURL)
}

// mayHavePassword reports whether an authority in a text without @ has a colon that no
// port follows. It exists because most texts are URLs without a secret.
func mayHavePassword(text string) bool {
	for {
		_, rest, ok := strings.Cut(text, "//")
		if !ok {
			return false
		}
		colon := false
		for i := 0; i < len(rest) && strings.IndexByte("/?# ", rest[i]) < 0; i++ {
			if colon && (rest[i] < '0' || rest[i] > '9') {
				return true
			}
			colon = colon || rest[i] == ':'
		}
		text = rest
	}
}

// hideSecrets replaces the secrets of a text, which has the given characters.
func (r *Redactor) hideSecrets(text string, chars []char, isURL bool) string {
	var out strings.Builder
	copied := 0 // bytes of text that are in out, or hidden
	replace := func(from, to int) {
		start, end := chars[from].at, len(text)
		if to < len(chars) {
			end = chars[to].at
		}
		if start = max(start, copied); start >= end {
			return
		}
		out.WriteString(text[copied:start])
		out.WriteString(mask)
		copied = end
	}
	for i := 0; i < len(chars); i++ {
		switch chars[i].c {
		case '=':
			if !r.isSecretName(chars, i) {
				continue
			}
			if end := r.valueEnd(chars, i, isURL); end > i+1 {
				replace(i+1, end)
				i = end - 1
			}
		case '/':
			if i == 0 || chars[i-1].c != '/' {
				continue
			}
			if at := userinfoEnd(chars, i+1, isURL); at > i+1 {
				replace(i+1, at)
				i = at
			}
		}
	}
	if copied == 0 {
		return text
	}
	out.WriteString(text[copied:])
	return out.String()
}

// isSecretName reports whether the name of a secret parameter is before the equals sign
// at chars[equals].
func (r *Redactor) isSecretName(chars []char, equals int) bool {
	start := equals
	for ; start > 0; start-- {
		c := chars[start-1]
		if isSeparator(c.c) || c.c == '=' && c.level < chars[equals].level {
			break
		}
		if c.level == 0 && (isSpace(c.c) || isForeign(c.c) || c.c == '=') {
			return false
		}
		if equals-start == longestName {
			return false
		}
	}
	if start == 0 || start == equals {
		return false
	}
	name := make([]byte, 0, longestName)
	for _, c := range chars[start:equals] {
		name = append(name, c.c)
	}
	return r.isSecret(string(name))
}

// longestName limits the length of a parameter's name, in bytes.
const longestName = 200

// isSecret reports whether a parameter is secret, by its name. Each part of a name
// such as auth[token] counts. A plus sign in a name means a blank.
func (r *Redactor) isSecret(name string) bool {
	if r.parameters[strings.ToLower(name)] {
		return true // with a plus sign that was escaped
	}
	name = strings.ReplaceAll(name, "+", " ")
	if r.parameters[strings.ToLower(name)] {
		return true
	}
	for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return c == '[' || c == ']' || c == '{' || c == '}' }) {
		lower := strings.ToLower(part)
		if r.parameters[lower] {
			return true
		}
		if len(lower) != len(part) {
			part = lower
		}
		for i := 1; i < len(part); i++ {
			begins := strings.IndexByte("-_.", part[i-1]) >= 0 || isUpper(part[i]) && !isUpper(part[i-1])
			if begins && r.parameters[lower[i:]] {
				return true
			}
		}
	}
	return false
}

// valueEnd returns where the value behind the equals sign at chars[equals] ends. A
// semicolon is part of it unless another secret parameter follows.
func (r *Redactor) valueEnd(chars []char, equals int, isURL bool) int {
	level := chars[equals].level
	end := equals + 1
	for ; end < len(chars); end++ {
		c := chars[end]
		if c.level > level {
			continue
		}
		if c.c == '&' || c.c == '#' || !isURL && urlEndsAt(chars, end) || c.c == ';' && r.secretFollows(chars, end) {
			break
		}
	}
	if isURL {
		return end
	}
	// Punctuation at the end belongs to the text around the URL.
	for end > equals+1 && chars[end-1].level <= level && strings.IndexByte(`:;,.)]}>"'\`+"`", chars[end-1].c) >= 0 {
		end--
	}
	return end
}

// secretFollows reports whether a secret parameter follows the semicolon at
// chars[i].
func (r *Redactor) secretFollows(chars []char, i int) bool {
	for k := i + 1; k < len(chars) && k <= i+longestName; k++ {
		switch c := chars[k]; {
		case c.c == '=':
			return r.isSecretName(chars, k)
		case isSeparator(c.c) || c.level == 0 && isSpace(c.c):
			return false
		}
	}
	return false
}

// userinfoEnd returns the index of the @ that ends the user name and password of the
// authority that begins at chars[i]; -1 if it has none. A password may have an @ in it.
// If the text before the first slash cannot be a host and a port, the password may also
// have a slash, a question mark and a number sign in it. If such an authority has no @,
// all of it is hidden.
func userinfoEnd(chars []char, i int, isURL bool) int {
	if i >= len(chars) {
		return -1
	}
	level := chars[i-1].level
	last, colon := -1, -1
	end := i
	for ; end < len(chars); end++ {
		c := chars[end]
		if c.level > level {
			continue
		}
		if strings.IndexByte("/?#", c.c) >= 0 || !isURL && urlEndsAt(chars, end) {
			break
		}
		switch c.c {
		case '@':
			last = end
		case ':':
			colon = end
		}
	}
	if last >= 0 || colon < 0 || chars[i].c == '[' || isPort(chars[colon+1:end]) {
		return last
	}
	last = end // the URL may have been cut within the password
	for ; end < len(chars); end++ {
		c := chars[end]
		if !isURL && urlEndsAt(chars, end) {
			break
		}
		if c.c == '@' && c.level <= level {
			last = end
		}
	}
	return last
}

func isPort(chars []char) bool {
	for _, c := range chars {
		if (c.c < '0' || c.c > '9') && c.c != ']' && c.c != ',' {
			return false
		}
	}
	return true
}

// urlEndsAt reports whether a URL in a text ends before chars[i].
func urlEndsAt(chars []char, i int) bool {
	c := chars[i]
	return c.level == 0 && (isSpace(c.c) || isForeign(c.c) && (i+1 == len(chars) || !isWord(chars[i+1].c)))
}

// isSeparator reports whether the name of a parameter may follow c.
func isSeparator(c byte) bool {
	return c == '?' || c == '&' || c == ';' || c == '#' || c == '/' || c == '!'
}

// isForeign reports whether c is in no URI and mostly surrounds one.
func isForeign(c byte) bool { return c == '"' || c == '<' || c == '>' || c == '`' }

func isSpace(c byte) bool { return c <= ' ' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || isUpper(c) || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '%' || c >= 0x80
}

// char is a byte of a text whose escapes are undone.
type char struct {
	c     byte
	level uint8 // how often it is percent-encoded
	at    int   // where it begins in the text
}

// decodeEscapes undoes the escapes of a text: percent-encoding, repeated as where a URL is
// the parameter of another, and those of JSON and XML.
func decodeEscapes(text string) []char {
	chars := make([]char, 0, len(text))
	for i := 0; i < len(text); {
		c := char{c: text[i], at: i}
		n := 1
		switch c.c {
		case '%':
			c.c, c.level, n = percent(text[i:])
		case '\\':
			c.c, n = backslash(text[i:])
		case '&':
			c.c, n = numericReference(text[i:])
		}
		chars = append(chars, c)
		i += n
	}
	return chars
}

// percent decodes the escape that text starts with. The percent sign may be encoded
// itself, as in %252F.
func percent(text string) (c byte, level uint8, n int) {
	for n = 1; ; n += 2 {
		c, ok := hexByte(text[n:])
		if !ok {
			break
		}
		level++
		if c != '%' || level == 255 {
			return c, level, n + 2
		}
	}
	return '%', level, n
}

func hexByte(text string) (byte, bool) {
	if len(text) < 2 {
		return 0, false
	}
	high, low := hexDigit(text[0]), hexDigit(text[1])
	return high<<4 | low, high < 16 && low < 16
}

// hexDigit returns 16 or more if c is no digit.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 255
}

// backslash decodes the escape of JSON that text starts with, if it is that of an
// ASCII character.
func backslash(text string) (c byte, n int) {
	if len(text) >= 2 && (text[1] == '/' || text[1] == '"') {
		return text[1], 2
	}
	if strings.HasPrefix(text, `\u00`) {
		if c, ok := hexByte(text[len(`\u00`):]); ok && c > ' ' && c < 0x7f {
			return c, len(`\u0000`)
		}
	}
	return '\\', 1
}

// numericReference decodes the reference of XML that text starts with, if it is that
// of an ASCII character.
func numericReference(text string) (c byte, n int) {
	if !strings.HasPrefix(text, "&#") {
		return '&', 1
	}
	digits, base := text[2:], 10
	if len(digits) > 0 && digits[0]|0x20 == 'x' {
		digits, base = digits[1:], 16
	}
	value := 0
	for i := 0; i < len(digits) && i < 8; i++ {
		if digits[i] == ';' && i > 0 && value > ' ' && value < 0x7f {
			return byte(value), len(text) - len(digits) + i + 1
		}
		d := int(hexDigit(digits[i]))
		if d >= base {
			break
		}
		value = value*base + d
	}
	return '&', 1
}

// JSON returns the JSON text b with every string in it clipped as by Clip, so
// that it can be shown to a person.
func (r *Redactor) JSON(b []byte, most int) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		start := bytes.IndexByte(b, '"')
		if start < 0 {
			break
		}
		end := start + 1
		for end < len(b) && b[end] != '"' {
			if b[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(b))
		var text string
		if json.Unmarshal(b[start:end], &text) != nil {
			break // not JSON
		}
		out = append(out, b[:start]...)
		out = appendQuoted(out, r.Clip(text, most))
		b = b[end:]
	}
	return append(out, b...)
}

func appendQuoted(out []byte, text string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can be encoded
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
