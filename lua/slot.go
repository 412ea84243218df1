package lua

import "strings"

// Slots is the number of hash slots of a cluster.
const Slots = 16384

// Slot is the cluster slot of key, as CLUSTER KEYSLOT gives it: CRC16-XMODEM over the hashtag, mod 16384. The hashtag is
// what stands between the first '{' and the next '}' when that is not empty, else the whole key. All keys of a queue
// carry the hashtag {queue}, so they share a slot and one script may touch them all.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if size := strings.IndexByte(key[open+1:], '}'); size > 0 {
			key = key[open+1 : open+1+size]
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return int(crc % Slots)
}

// crc16 is the table of the polynomial x^16 + x^12 + x^5 + 1.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
