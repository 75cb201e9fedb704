package boltdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The format of bbolt, as far as a check needs it. A file consists of pages of one size. The first
// two are meta pages; the valid one with the higher transaction number counts. All numbers have the
// machine's byte order.
//
//	page    id 8, flags 2, count 2, overflow 4 (further pages that belong to it), the elements
//	meta    magic 4, version 4, page size 4, flags 4, root 8, sequence 8, free list 8, pages 8,
//	        transaction 8, FNV-1a of it 8
//	branch  position 4, key size 4, page 8              (position: from the element's own first byte)
//	leaf    flags 4, position 4, key size 4, value size 4
//	bucket  (value of a leaf element with flag 1) root 8, sequence 8; if root is 0 a page follows
//	        in the value itself
const (
	magic       = 0xED0CDAED
	version     = 2
	headerSize  = 16
	elementSize = 16
	metaSize    = 64
	bucketSize  = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01
	noFreelist   = ^uint64(0)

	maxDepth = 64 // of pages and of buckets in buckets; a real database has 5
	maxKey   = 1 << 15
)

// checker walks all pages of a database that can be reached, without bbolt. It does not look at
// values.
type checker struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	pages    uint64   // in use, or free
	seen     []uint64 // a bit for each page that was met
}

type meta struct{ root, freelist, pages, transaction uint64 }

// run returns what is wrong with the database. An empty file is a new database.
func (c *checker) run() error {
	if c.size == 0 {
		return nil
	}
	m, ok := c.meta(0)
	if second, valid := c.meta(c.pageSize); valid && (!ok || second.transaction >= m.transaction) {
		m, ok = second, true
	}
	if !ok {
		return errors.New("no valid meta page")
	}
	if c.pages = m.pages; c.pages < 4 || c.pages > uint64(c.size/c.pageSize) {
		return fmt.Errorf("%d pages of %d bytes in a file of %d", c.pages, c.pageSize, c.size)
	}
	c.seen = make([]uint64, c.pages/64+1)
	c.seen[0] = 0b11 // the meta pages
	if m.freelist != noFreelist {
		if err := c.newFreelist(m.freelist); err != nil {
			return err
		}
	}
	return c.page(m.root, 0, nil, nil)
}

func (c *checker) meta(off int64) (m meta, ok bool) {
	b := make([]byte, headerSize+metaSize)
	if _, err := c.file.ReadAt(b, off); err != nil {
		return m, false
	}
	e, b := binary.NativeEndian, b[headerSize:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	ok = e.Uint32(b) == magic && e.Uint32(b[4:]) == version && int64(e.Uint32(b[8:])) == c.pageSize &&
		e.Uint64(b[56:]) == sum.Sum64()
	return meta{e.Uint64(b[16:]), e.Uint64(b[32:]), e.Uint64(b[40:]), e.Uint64(b[48:])}, ok
}

// newFreelist checks the free list of a new database: bbolt makes it with an empty one, and the
// first transaction drops that.
func (c *checker) newFreelist(id uint64) error {
	if id != 2 {
		return fmt.Errorf("a free list in page %d", id)
	}
	head, err := c.read(int64(id)*c.pageSize, headerSize)
	if err != nil {
		return err
	}
	want := make([]byte, headerSize)
	binary.NativeEndian.PutUint64(want, id)
	binary.NativeEndian.PutUint16(want[8:], freelistPage)
	if !bytes.Equal(head, want) {
		return errors.New("the free list of a new database is not empty")
	}
	c.seen[0] |= 1 << id
	return nil
}

// page checks a branch or leaf page and all pages below it. least and most are bounds of its keys,
// the latter excluded; nil is no bound.
func (c *checker) page(id uint64, depth int, least, most []byte) error {
	if depth > maxDepth {
		return errors.New("pages within pages without end")
	}
	if id >= c.pages {
		return fmt.Errorf("page %d of %d", id, c.pages)
	}
	start := int64(id) * c.pageSize
	head, err := c.read(start, headerSize)
	if err != nil {
		return err
	}
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if own := binary.NativeEndian.Uint64(head); own != id || overflow >= c.pages-id {
		return fmt.Errorf("page %d calls itself %d with %d more", id, own, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		bit := uint64(1) << (i % 64)
		if c.seen[i/64]&bit != 0 {
			return fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i/64] |= bit
	}
	if err := c.elements(start, start+int64(overflow+1)*c.pageSize, depth, least, most); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (c *checker) read(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	_, err := c.file.ReadAt(b, off)
	return b, err
}

// elements checks the elements of a page that lies in the file from start to end.
func (c *checker) elements(start, end int64, depth int, least, most []byte) error {
	head, err := c.read(start, headerSize)
	if err != nil {
		return err
	}
	e := binary.NativeEndian
	flags, count := e.Uint16(head[8:]), int64(e.Uint16(head[10:]))
	body := start + headerSize + count*elementSize
	if flags != branchPage && flags != leafPage || flags == branchPage && count == 0 || body > end {
		return fmt.Errorf("flags %#x and %d elements in %d bytes", flags, count, end-start)
	}
	all, err := c.read(start+headerSize, count*elementSize)
	if err != nil {
		return err
	}
	keys, below := make([][]byte, count, count+1), make([]uint64, count)
	for i := range count {
		x, at := all[i*elementSize:], start+headerSize+i*elementSize
		var keySize, valueSize int64
		if flags == branchPage {
			at, keySize, below[i] = at+int64(e.Uint32(x)), int64(e.Uint32(x[4:])), e.Uint64(x[8:])
		} else {
			at, keySize, valueSize = at+int64(e.Uint32(x[4:])), int64(e.Uint32(x[8:])), int64(e.Uint32(x[12:]))
		}
		if at < body || at+keySize+valueSize > end || keySize > maxKey {
			return fmt.Errorf("element %d lies outside", i)
		}
		if keys[i], err = c.read(at, keySize); err != nil {
			return err
		}
		// The least key of a branch may be lower than all keys in the page below it, but never
		// higher.
		if i == 0 && bytes.Compare(keys[i], least) < 0 || i > 0 && bytes.Compare(keys[i], keys[i-1]) <= 0 ||
			most != nil && bytes.Compare(keys[i], most) >= 0 {
			return fmt.Errorf("element %d is out of order", i)
		}
		switch kind := e.Uint32(x); {
		case flags == branchPage || kind == 0:
		case kind != bucketLeaf:
			return fmt.Errorf("element %d: flags %#x", i, kind)
		case valueSize > c.pageSize:
			return fmt.Errorf("a bucket of %d bytes in element %d", valueSize, i)
		default:
			if err := c.bucket(at+keySize, at+keySize+valueSize, depth); err != nil {
				return fmt.Errorf("bucket in element %d: %w", i, err)
			}
		}
	}
	if flags == leafPage {
		return nil
	}
	keys = append(keys, most)
	for i, id := range below {
		if err := c.page(id, depth+1, keys[i], keys[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket whose value in its parent lies in the file from start to end.
func (c *checker) bucket(start, end int64, depth int) error {
	if end-start < bucketSize {
		return errors.New("too short")
	}
	b, err := c.read(start, bucketSize)
	if err != nil {
		return err
	}
	if root := binary.NativeEndian.Uint64(b); root != 0 {
		return c.page(root, depth+1, nil, nil)
	}
	if start += bucketSize; end-start < headerSize {
		return errors.New("too short for the page in it")
	}
	if b, err = c.read(start, headerSize); err != nil {
		return err
	}
	if depth > maxDepth || binary.NativeEndian.Uint16(b[8:]) != leafPage {
		return errors.New("the page in it is no leaf")
	}
	return c.elements(start, end, depth+1, nil, nil)
}
