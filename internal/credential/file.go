package credential

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Read returns value, or, if value names a file, the content of the file without a byte order mark and the line
// ends behind it. The file is read each time. It returns an error if the file cannot be read or is empty. key is the
// key of the value in the configuration; errors begin with it.
func Read(value Secret, key string) (Secret, error) {
	return readValue(value, key, func(s string) string { return strings.TrimRight(s, "\r\n") })
}

// ReadTrimmed is [Read] without the white space around the file's content, for a secret that is
// sent in an HTTP header.
func ReadTrimmed(value Secret, key string) (Secret, error) {
	return readValue(value, key, strings.TrimSpace)
}

// ReadFile returns the content of a text file without the byte order mark of UTF-8, which editors and shells
// of Windows write and which neither servers nor parsers of PEM expect.
func ReadFile(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, ExplainFileError(err)
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, fmt.Errorf("%s is in UTF-16; write it in UTF-8", file)
	case bytes.IndexByte(data, 0) >= 0:
		return nil, fmt.Errorf("%s contains a NUL byte; write it as text, certificates and keys as PEM", file)
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}

// ExplainFileError adds its cure to err, the error of reading a file that the configuration names.
func ExplainFileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; create the file, or correct its path", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; give the user of feedbridge the right to read the file", err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w; name a file in it", err)
	}
	return err
}

func readValue(value Secret, key string, trim func(string) string) (Secret, error) {
	file, ok := value.File()
	if !ok {
		return value, nil
	}
	data, err := ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	text := trim(string(data))
	if text == "" {
		return "", fmt.Errorf("%s: %s is empty", key, file)
	}
	return Secret(text), nil
}
