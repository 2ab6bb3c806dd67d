package polylatch

import com.sun.jna.Native

/** What is asked before every write, mapped directly: a call of the generated half costs some tens of microseconds. */
internal object Direct {
    init {
        // As the generated half finds it.
        val library = System.getProperty("uniffi.component.polylatch_native.libraryOverride") ?: "polylatch_uniffi"
        Native.register(Direct::class.java, library)
    }

    /** 1 if what the slot of this number holds is still held. */
    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    external fun polylatch_uniffi_is_held(number: Long): Byte
}
